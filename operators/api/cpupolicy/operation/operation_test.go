// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRequestsAreReadStrictly(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want Request
		errs []string
	}{
		"a request": {text: `{"id":"op-1","policy":"static","driver":"kubelet"}`, want: Request{ID: "op-1", Policy: Static, Driver: DriverKubelet}},
		"a request with limits": {text: `{"id":"op-1","policy":"none","driver":"rke2","limits":{"total":"30s","rollBack":"10s"}}`,
			want: Request{ID: "op-1", Policy: None, Driver: DriverRKE2, Limits: Limits{Total: metav1.Duration{Duration: 30 * time.Second}, RollBack: metav1.Duration{Duration: 10 * time.Second}}}},
		"nothing":                      {errs: []string{"unexpected end"}},
		"an unknown field":             {text: `{"id":"op-1","policy":"none","driver":"rke2","unit":"evil.service"}`, errs: []string{`unknown field "unit"`}},
		"two objects":                  {text: `{"id":"a","policy":"none","driver":"rke2"}{}`, errs: []string{"after top-level value"}},
		"a field twice":                {text: `{"id":"a","id":"b","policy":"none","driver":"rke2"}`, errs: []string{`duplicate field "id"`}},
		"a field in capitals":          {text: `{"ID":"a","policy":"none","driver":"rke2"}`, errs: []string{`unknown field "ID"`}},
		"more than fits":               {text: `{"id":"` + strings.Repeat("a", MaxSize) + `"}`, errs: []string{"at most 4096"}},
		"an id with a path":            {text: `{"id":"../a","policy":"none","driver":"rke2"}`, errs: []string{`operation "../a"`, `id: Invalid value: "../a"`}},
		"no id":                        {text: `{"policy":"none","driver":"rke2"}`, errs: []string{`id: Invalid value: ""`}},
		"a policy that upstream lacks": {text: `{"id":"a","policy":"dynamic","driver":"rke2"}`, errs: []string{`policy: Unsupported value: "dynamic"`, `"none", "static"`}},
		"a driver that is none":        {text: `{"id":"a","policy":"none","driver":"sh -c x"}`, errs: []string{`driver: Unsupported value: "sh -c x"`}},
		"too much time":                {text: `{"id":"a","policy":"none","driver":"rke2","limits":{"total":"151s"}}`, errs: []string{`limits.total: Invalid value: "2m31s"`, "2m30s"}},
		"no time forward":              {text: `{"id":"a","policy":"none","driver":"rke2","limits":{"rollBack":"150s"}}`, errs: []string{`limits.rollBack: Invalid value: "2m30s"`}},
		"a negative time":              {text: `{"id":"a","policy":"none","driver":"rke2","limits":{"total":"-1s"}}`, errs: []string{`limits.total: Invalid value: "-1s"`}},
		"a time that is none":          {text: `{"id":"a","policy":"none","driver":"rke2","limits":{"total":"soon"}}`, errs: []string{"soon"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseRequest([]byte(test.text))
			checkError(t, err, test.errs)
			if got != test.want {
				t.Errorf("the request is %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestRequestsAreReadAsTheyWereWritten(t *testing.T) {
	want := Request{ID: "op-1", Policy: Static, Driver: DriverRKE2, Limits: Limits{Total: metav1.Duration{Duration: 90 * time.Second}}}
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseRequest(data); err != nil || got != want {
		t.Errorf("the request is %+v (%v), want %+v", got, err, want)
	}
	_, err = Request{ID: "op-1", Policy: "dynamic", Driver: DriverRKE2}.Encode()
	checkError(t, err, []string{`operation "op-1"`, `policy: Unsupported value: "dynamic"`})
}

func TestRefusalsOfOlderAgentsAreRead(t *testing.T) {
	for text, want := range map[string]Refusals{
		`{"refused":{"none":"the flag is set\nand more"}}`:                             Refuse("the flag is set\nand more"),
		`{"refused":{"none":[{"code":"ContainersHoldCPUs","text":"c"},{"text":"f"}]}}`: {{ContainersHoldCPUs, "c"}, {"", "f"}},
	} {
		o, err := ParseObservation([]byte(text))
		if err != nil || !slices.Equal(o.Refused[None], want) {
			t.Errorf("%s is read as %v: %v", text, o.Refused, err)
		}
	}
	if _, err := ParseObservation([]byte(`{"refused":{"none":[{"why":"c"}]}}`)); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("an unknown field of a refusal gets %v", err)
	}
}

func TestManyRefusalsKeepTheirCodes(t *testing.T) {
	o := Observation{Refused: map[Policy]Refusals{}}
	for i := range 200 {
		o.Refused[None] = append(o.Refused[None], Refusal{ContainersHoldCPUs, fmt.Sprintf("container c of pod n/p%d has CPU %[1]d exclusively", i)})
	}
	o.Refused[None] = append(o.Refused[None], Refusal{Text: "the flag is set"})
	data, err := o.Encode()
	if err != nil || len(data) > MaxSize {
		t.Fatalf("it has %d bytes: %v", len(data), err)
	}
	got, err := ParseObservation(data)
	if err != nil {
		t.Fatal(err)
	}
	if left := got.Refused[None].Without(ContainersHoldCPUs); !slices.Equal(left, Refuse("the flag is set")) || len(got.Refused[None]) < 10 {
		t.Errorf("of %d refusals, those that a drain does not change are %v", len(got.Refused[None]), left)
	}
}

func TestLimitsLeaveTimeForTheRollBack(t *testing.T) {
	for _, test := range []struct{ total, back, wantTotal, wantBack time.Duration }{
		{0, 0, 150 * time.Second, 70 * time.Second},
		{10 * time.Second, 0, 10 * time.Second, 5 * time.Second},
		{10 * time.Second, 2 * time.Second, 10 * time.Second, 2 * time.Second},
	} {
		l := Limits{metav1.Duration{Duration: test.total}, metav1.Duration{Duration: test.back}}.WithDefaults()
		if l.Total.Duration != test.wantTotal || l.RollBack.Duration != test.wantBack {
			t.Errorf("the limits of %+v are %+v", test, l)
		}
	}
}

func TestResultsAreReadAsTheyWereWritten(t *testing.T) {
	want := Result{ID: "op-1", Outcome: RolledBack, Step: "healthy", Policy: None, Message: "the kubelet ended 3 times", KubeletError: `E1103 run.go:72] "command failed" err="no"`}
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseResult(data); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the result is %+v (%v), want %+v", got, err, want)
	}
}

func TestALongResultIsShortened(t *testing.T) {
	for name, text := range map[string]string{
		"of letters": strings.Repeat("x", 10*MaxSize), "of what JSON escapes": strings.Repeat("\x01", 10*MaxSize), "of what is no text": strings.Repeat("x\xff", MaxSize), "of runes": strings.Repeat("ä", MaxSize),
	} {
		t.Run(name, func(t *testing.T) {
			data, err := Result{ID: "a", Outcome: Failed, Step: "start", Message: text, KubeletError: text}.Encode()
			if err != nil || len(data) > MaxSize || len(data) < MaxSize/4 {
				t.Fatalf("it has %d bytes (%v)", len(data), err)
			}
			if result, err := ParseResult(data); err != nil || !strings.HasSuffix(result.Message, "…") || !strings.HasSuffix(result.KubeletError, "…") {
				t.Errorf("it is read as %v, %v", result, err)
			}
		})
	}
}

func TestResultsAreReadStrictly(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		errs []string
	}{
		"what a container prints by itself": {"panic: oops", []string{"result of an operation", "invalid character"}},
		"an unknown outcome":                {`{"id":"a","outcome":"success","step":"verify"}`, []string{`operation "a"`, `outcome: Unsupported value: "success"`}},
		"no step":                           {`{"id":"a","outcome":"failed"}`, []string{`step: Invalid value: ""`}},
		"an unknown policy":                 {`{"id":"a","outcome":"failed","step":"stop","policy":"x"}`, []string{`policy: Unsupported value: "x"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseResult([]byte(test.text))
			checkError(t, err, test.errs)
		})
	}
	if _, err := (Result{ID: "A", Outcome: Failed, Step: "stop"}).Encode(); err == nil || !strings.Contains(err.Error(), `id: Invalid value: "A"`) {
		t.Errorf("an invalid result is encoded: %v", err)
	}
}

func observationOf(places int) Observation {
	o := Observation{
		Policy: Static, Configured: Static,
		Refused:   map[Policy]Refusals{Static: Refuse("the policy is static already")},
		Operation: "op-1", Step: "report",
		Result: &Result{ID: "op-1", Outcome: Succeeded, Step: "report", Policy: Static},
		Kubelet: &Kubelet{
			CPUManagerPolicyOptions: map[string]string{"full-pcpus-only": "true"},
			Reserved:                resource.MustParse("980m"), ReservedCPUs: "0-1",
			TopologyManagerPolicy: "restricted", TopologyManagerScope: "pod", MemoryManagerPolicy: "Static",
		},
	}
	for number := range places {
		first := 2 * number
		o.Kubelet.Places = append(o.Kubelet.Places, Place{Socket: number, NUMANode: number % 8, Cores: []string{fmt.Sprintf("%d,%d", first, first+2*places), fmt.Sprintf("%d,%d", first+1, first+2*places+1)}})
	}
	return o
}

func TestObservationsAreReadAsTheyWereWritten(t *testing.T) {
	for name, want := range map[string]Observation{"nothing": {}, "all": observationOf(2)} {
		t.Run(name, func(t *testing.T) {
			data, err := want.Encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseObservation(data)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := got.Encode(); err != nil || string(again) != string(data) {
				t.Errorf("%s is read as %s, %v", data, again, err)
			}
		})
	}
}

func TestWhatIsLongGoesFromAnObservation(t *testing.T) {
	long := strings.Repeat("\x01", MaxSize)
	for name, test := range map[string]struct {
		change func(*Observation)
		// places and shortened are what is gone from it.
		places, shortened bool
	}{
		"nothing is long":        {func(*Observation) {}, false, false},
		"the host has many CPUs": {func(o *Observation) { o.Kubelet.Places = observationOf(200).Kubelet.Places }, true, false},
		"a reason is long":       {func(o *Observation) { o.Refused[Static] = Refuse(long) }, true, true},
		"the result's texts are": {func(o *Observation) { o.Result.Message, o.Result.KubeletError = long, long }, true, true},
		"so is all of it": {func(o *Observation) {
			o.Refused[None], o.Refused[Static], o.Result.Message = Refuse(long), Refuse(long), long
		}, true, true},
		"and there is no kubelet":    {func(o *Observation) { o.Kubelet, o.Refused[None] = nil, Refuse(long) }, true, true},
		"a reason without a kubelet": {func(o *Observation) { o.Kubelet = nil }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := observationOf(2)
			test.change(&o)
			before := fmt.Sprintf("%+v", o)
			data, err := o.Encode()
			if err != nil || len(data) > MaxSize {
				t.Fatalf("it has %d bytes, %v", len(data), err)
			}
			if after := fmt.Sprintf("%+v", o); after != before {
				t.Errorf("the observation itself is changed")
			}
			got, err := ParseObservation(data)
			if err != nil {
				t.Fatal(err)
			}
			if gone := got.Kubelet == nil || len(got.Kubelet.Places) == 0; gone != test.places {
				t.Errorf("the kubelet is %+v", got.Kubelet)
			}
			if shortened := strings.Contains(string(data), "…"); shortened != test.shortened {
				t.Errorf("it is %s", data)
			}
			if got.Kubelet != nil && got.Kubelet.ReservedCPUs != "0-1" {
				t.Errorf("the kubelet is %+v", got.Kubelet)
			}
		})
	}
	o := observationOf(0)
	o.Kubelet.CPUManagerPolicyOptions["x"] = long
	_, err := o.Encode()
	checkError(t, err, []string{"observation: it has ", "at most 4096"})
}

func TestObservationsAreReadStrictly(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		errs []string
	}{
		"what a container prints by itself": {"panic: oops", []string{"observation: ", "invalid character"}},
		"nothing":                           {"", []string{"observation: "}},
		"an unknown field":                  {`{"unit":"x"}`, []string{`unknown field "unit"`}},
		"an unknown field below":            {`{"kubelet":{"unit":"x"}}`, []string{`unknown field "kubelet.unit"`}},
		"more than fits":                    {`{"step":"` + strings.Repeat("a", MaxSize) + `"}`, []string{"at most 4096"}},
		"an unknown policy":                 {`{"policy":"x"}`, []string{`policy: Unsupported value: "x"`}},
		"another policy configured":         {`{"configured":"x"}`, []string{`configured: Unsupported value: "x"`}},
		"a refusal of an unknown policy":    {`{"refused":{"x":"y"}}`, []string{`refused: Unsupported value: "x"`}},
		"an operation with a path":          {`{"operation":"../a"}`, []string{`operation: Invalid value: "../a"`}},
		"a step that is none":               {`{"step":"a b"}`, []string{`step: Invalid value: "a b"`}},
		"a result that is none":             {`{"result":{"id":"a","outcome":"x","step":"stop"}}`, []string{`result.outcome: Unsupported value: "x"`}},
		"a reservation that is none":        {`{"kubelet":{"reserved":"lots"}}`, []string{"observation: "}},
		"a number that takes minutes":       {`{"kubelet":{"reserved":"1e-9999999999"}}`, []string{"observation: the number 1e-9999999999"}},
		"the same without quotes":           {`{"kubelet":{"reserved": 1E+9999999999}}`, []string{"observation: the number 1E+9999999999"}},
		"the same, and another after it":    {`{"kubelet":{"reserved":" 1e-9999999999","reserved":"1"}}`, []string{"observation: the number 1e-9999999999"}},
		"a negative reservation":            {`{"kubelet":{"reserved":"-1"}}`, []string{`kubelet.reserved: Invalid value: "-1"`}},
		"a NUMA node below all":             {`{"kubelet":{"places":[{"numaNode":-1,"cores":["0"]}]}}`, []string{`kubelet.places[0].numaNode: Invalid value: -1`}},
		"a NUMA node beyond all":            {`{"kubelet":{"places":[{"cores":["0"]},{"numaNode":64,"cores":["1"]}]}}`, []string{`kubelet.places[1].numaNode: Invalid value: 64: must be from 0 to 63`}},
		"a CPU in two cores":                {`{"kubelet":{"places":[{"cores":["0-3"]},{"cores":["7","2-8191"]}]}}`, []string{`kubelet.places[1].cores[1]: Invalid value: "2-8191": CPU 2 is in another core, too`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseObservation([]byte(test.text))
			checkError(t, err, test.errs)
		})
	}
	_, err := Observation{Policy: "dynamic"}.Encode()
	checkError(t, err, []string{`policy: Unsupported value: "dynamic"`})
}

func FuzzObservations(f *testing.F) {
	for _, o := range []Observation{{}, observationOf(2)} {
		data, err := o.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := ParseObservation(data)
		if err != nil {
			return
		}
		// JSON may be longer than what it was read from.
		data, err = o.Encode()
		if err != nil && !strings.Contains(err.Error(), "at most 4096") {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		if _, err := ParseObservation(data); err != nil || len(data) > MaxSize {
			t.Errorf("%s is written with %d bytes, and read with %v", data, len(data), err)
		}
	})
}

// checkError checks that an error has all these texts, and that there is none if there are none.
func checkError(t *testing.T, err error, texts []string) {
	t.Helper()
	if (err == nil) != (len(texts) == 0) {
		t.Fatalf("the error is %v, want %q", err, texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %q, want %q", err, text)
		}
	}
}

func TestACPUListCannotKeepItsReaderBusy(t *testing.T) {
	for _, list := range []string{"0-9223372036854775806", "0-8192", "3,1", "1,1", "1-", "-1", "a", "2-1", "0-5,3", "1,,2", " 1"} {
		for _, kubelet := range []Kubelet{{ReservedCPUs: list}, {Places: []Place{{Cores: []string{"0", list}}}}} {
			data, err := json.Marshal(Observation{Kubelet: &kubelet})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ParseObservation(data); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", list)) || !strings.Contains(err.Error(), "kubelet.") {
				t.Errorf("%s: the error is %v", data, err)
			}
		}
	}
	if _, err := ParseObservation([]byte(`{"kubelet":{"reservedCPUs":"0-3,28-31,8191"}}`)); err != nil {
		t.Error(err)
	}
}

// Each look at the nodes reads what was observed of all of them several times.
func TestManyCoresAreReadWithLittleMemory(t *testing.T) {
	cores := []string{"0-7600"}
	for cpu := 7601; cpu <= 8150; cpu++ {
		cores = append(cores, fmt.Sprint(cpu))
	}
	data, err := json.Marshal(Observation{Kubelet: &Kubelet{Places: []Place{{Cores: cores}}}})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = ParseObservation(data)
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; err != nil || taken > 8<<20 {
		t.Errorf("%d bytes take %d bytes of memory: %v", len(data), taken, err)
	}
}
