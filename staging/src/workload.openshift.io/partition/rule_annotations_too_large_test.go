package partition

import (
	"strings"
	"testing"
)

func TestAnnotationsTooLarge(t *testing.T) {
	with := func(ours int) ruleTest {
		own := maxAnnotations - len("mine") - ours
		return ruleTest{pod: pod(map[string]string{"mine": strings.Repeat("x", own)}, container("a", "cpu=400m memory=1Mi", ""))}
	}
	for effect, value := range map[string]string{"soft": soft, "hard": hard} {
		fits := len(target) + len(value) + len(ResourcesPrefix+"a") + len(`{"cpushares":400}`)
		for name, test := range map[string]struct {
			ruleTest
			want Outcome
		}{
			"all that there is room for": {with(fits), Partitioned},
			"a byte more":                {with(fits - 1), map[string]Outcome{"soft": Skipped, "hard": Refused}[effect]},
		} {
			p := test.pod
			p.Annotations[target] = value
			if d := Mutate(V1(p), Policy{Gate: AnyType}); d.Outcome != test.want || (d.Reason == ReasonAnnotationsTooLarge) != (test.want != Partitioned) {
				t.Errorf("%s, %s: decided %q because of %q", effect, name, d.Outcome, d.Reason)
			}
			if _, warned := p.Annotations[WarningAnnotation]; warned {
				t.Errorf("%s, %s: a warning was written for which there is no room", effect, name)
			}
		}
	}
}
