// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"
	"image/color"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// line is what is drawn of a run.
type line struct {
	name    string
	samples []sample
}

// colours are those of Okabe and Ito, which people with any colour vision can tell apart.
var colours = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff},
}

// chart draws as SVG the nodes of each line over time, and below the pods that run and wait of the last one.
func chart(title string, lines []line) (*vgsvg.Canvas, error) {
	nodes, pods := plot.New(), plot.New()
	nodes.Title.Text, nodes.Y.Label.Text = title, "nodes"
	pods.X.Label.Text, pods.Y.Label.Text = "hours", "pods"
	for _, p := range []*plot.Plot{nodes, pods} {
		p.Add(plotter.NewGrid())
		p.Y.Min = 0
		p.Legend.Top = true
	}
	add := func(p *plot.Plot, name string, i int, samples []sample, value func(sample) int) error {
		var points plotter.XYs
		for _, s := range samples {
			if s.at%(5*time.Minute) == 0 {
				points = append(points, plotter.XY{X: s.at.Hours(), Y: float64(value(s))})
			}
		}
		l, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.Color, l.Width = colours[i%len(colours)], vg.Points(1.5)
		p.Add(l)
		p.Legend.Add(name, l)
		return nil
	}
	for i, line := range lines {
		if err := add(nodes, line.name, i, line.samples, func(s sample) int { return s.nodes }); err != nil {
			return nil, err
		}
	}
	last := lines[len(lines)-1].samples
	if err := add(pods, "run", 0, last, func(s sample) int { return s.running }); err != nil {
		return nil, err
	}
	if err := add(pods, "wait", 1, last, func(s sample) int { return s.pended }); err != nil {
		return nil, err
	}
	nodes.Y.Max *= 1.3 // room for the legend
	pods.Y.Max *= 1.1
	canvas := vgsvg.New(8*vg.Inch, 7*vg.Inch)
	whole := draw.New(canvas)
	height := whole.Max.Y - whole.Min.Y
	nodes.Draw(draw.Crop(whole, 0, 0, height/3, 0))
	pods.Draw(draw.Crop(whole, 0, 0, 0, -height*2/3))
	return canvas, nil
}
