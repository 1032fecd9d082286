// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestThePlotHasALineForEachNode(t *testing.T) {
	reading := Reading{Spun: 2 * time.Minute, Largest: 90 * time.Millisecond, Gaps: []Gaps{
		{12 * time.Microsecond, 20_000}, {13 * time.Microsecond, 0}, {time.Millisecond, 9}, {100 * time.Millisecond, 1}}}
	const name = `reserved & "idle" <1>`
	text := Plot("gaps", []Line{{name, reading}, {"nothing was measured", Reading{}}, {"no gap", Reading{Spun: time.Minute}}})
	var svg struct {
		Texts []string `xml:"text"`
		Lines []struct {
			Points string `xml:"points,attr"`
		} `xml:"polyline"`
	}
	if err := xml.Unmarshal([]byte(text), &svg); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	// From 10 µs to 100 ms, and from once to 100,000 times a minute: one every two minutes is the least.
	for _, want := range []string{name, "nothing was measured", "no gap", "10µs", "1ms", "100ms", "0.1", "1", "100000"} {
		if !slices.Contains(svg.Texts, want) {
			t.Errorf("the plot has the texts %q, want one that is %q", svg.Texts, want)
		}
	}
	if len(svg.Lines) != 1 {
		t.Fatalf("the plot has the lines %v, want one: the others have no gaps", svg.Lines)
	}
	var lastX, lastY float64
	points := strings.Fields(svg.Lines[0].Points)
	for _, p := range points {
		var x, y float64
		if _, err := fmt.Sscanf(p, "%f,%f", &x, &y); err != nil {
			t.Fatalf("the line has the point %q: %v", p, err)
		}
		if x <= lastX || y <= lastY || x < plotLeft || x > plotWidth-plotRight || y < plotTop || y > plotHeight-plotEnd {
			t.Errorf("the line is %q, want it within the axes, and longer gaps farther right and not above shorter ones", points)
		}
		lastX, lastY = x, y
	}
	if len(points) != 3 || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Errorf("the line is %q, want three points, in\n%s", points, text)
	}
}
