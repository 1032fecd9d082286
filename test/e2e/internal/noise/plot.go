// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"time"
)

// Line is what is drawn of a node: how often the application was kept from running for how long.
type Line struct {
	Name    string
	Reading Reading
}

// The size of a plot, and of the margins around its axes.
const (
	plotWidth, plotHeight                 = 900, 480
	plotLeft, plotRight, plotTop, plotEnd = 80, 230, 20, 50
)

// colours are those of Okabe and Ito, which people with any colour vision can tell apart.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// Plot draws as SVG how many gaps of a length or longer each line has in a minute. Both axes are
// logarithmic: gaps are between 10 µs and a second, and up to hundreds of thousands.
//
// It is written by hand, since it is a few lines and rectangles: a library for plots would bring
// fonts and a dozen modules into the module of the end-to-end tests.
func Plot(title string, lines []Line) string {
	longest, most, least := 100*time.Microsecond, 10.0, 1.0
	curves := make([][]point, len(lines))
	for i, line := range lines {
		curves[i] = curve(line.Reading)
		for _, p := range curves[i] {
			longest, most, least = max(longest, p.gap), max(most, p.perMinute), min(least, p.perMinute)
		}
	}
	x := newAxis(10e-6, longest.Seconds(), plotLeft, plotWidth-plotRight)
	y := newAxis(least, most, plotHeight-plotEnd, plotTop)
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" role="img">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&svg, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n", escape(title))
	for power := x.least; power <= x.most; power++ {
		at := x.at(math.Pow10(power))
		fmt.Fprintf(&svg, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#dddddd\"/>\n", at, plotTop, at, plotHeight-plotEnd)
		fmt.Fprintf(&svg, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", at, plotHeight-plotEnd+18, time.Duration(math.Round(math.Pow10(power+9))))
	}
	for power := y.least; power <= y.most; power++ {
		at := y.at(math.Pow10(power))
		fmt.Fprintf(&svg, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n", plotLeft, at, plotWidth-plotRight, at)
		fmt.Fprintf(&svg, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", plotLeft-8, at+4, math.Pow10(power))
	}
	fmt.Fprintf(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">a gap of this length or longer</text>\n", (plotLeft+plotWidth-plotRight)/2, plotHeight-10)
	fmt.Fprintf(&svg, "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">times in a minute</text>\n", (plotTop+plotHeight-plotEnd)/2)
	for i, line := range lines {
		colour, dashes := colours[i%len(colours)], ""
		if i >= len(colours) {
			dashes = ` stroke-dasharray="6 3"`
		}
		var points []string
		for _, p := range curves[i] {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(p.gap.Seconds()), y.at(p.perMinute)))
		}
		if len(points) > 0 {
			fmt.Fprintf(&svg, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", strings.Join(points, " "), colour, dashes)
		}
		at := plotTop + 14 + 22*i
		fmt.Fprintf(&svg, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", plotWidth-plotRight+15, at-4, plotWidth-plotRight+45, at-4, colour, dashes)
		fmt.Fprintf(&svg, "<text x=\"%d\" y=\"%d\">%s</text>\n", plotWidth-plotRight+52, at, escape(line.Name))
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

// point says how often a minute there were gaps of a length or longer.
type point struct {
	gap       time.Duration
	perMinute float64
}

// curve returns the points of a reading, the shortest gaps first. A class of gaps stands where it
// ends, and the last one where the largest gap was.
func curve(r Reading) (points []point) {
	if r.Spun <= 0 {
		return nil
	}
	var longer int64
	for _, g := range r.Gaps {
		longer += g.Count
	}
	for _, g := range r.Gaps {
		if g.Count > 0 {
			points = append(points, point{cmp.Or(min(g.Bound, r.Largest), g.Bound), float64(longer) / r.Spun.Minutes()})
		}
		longer -= g.Count
	}
	return points
}

// axis is a logarithmic axis of whole powers of ten, which begins at from and ends at to.
type axis struct {
	least, most int
	from, to    float64
}

func newAxis(least, most, from, to float64) axis {
	a := axis{int(math.Floor(math.Log10(least) + 1e-9)), int(math.Ceil(math.Log10(most) - 1e-9)), from, to}
	a.most = max(a.most, a.least+1)
	return a
}

func (a axis) at(value float64) float64 {
	return a.from + (math.Log10(value)-float64(a.least))/float64(a.most-a.least)*(a.to-a.from)
}

func escape(text string) string {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(text)) // a strings.Builder takes everything
	return escaped.String()
}
