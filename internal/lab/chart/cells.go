package chart

import (
	"image/color"
	"strconv"

	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"
)

// Cells draws a table of values, row by row from the top, each on a colour from
// red (0) over white (half of the largest) to blue, with its number.
func (c *Chart) Cells(rows, columns []string, values [][]float64) {
	g := &cells{rows: len(rows), columns: len(columns), values: values}
	var at plotter.XYLabels
	largest := 0.0
	for x := range columns {
		for y := range rows {
			v := g.Z(x, y)
			largest = max(largest, v)
			at.XYs = append(at.XYs, Point{X: float64(x), Y: float64(y)})
			at.Labels = append(at.Labels, strconv.FormatFloat(v, 'f', 0, 64))
		}
	}
	shades := moreland.SmoothBlueRed()
	shades.SetMin(0)
	shades.SetMax(1)
	tones := shades.Palette(255).Colors()
	reversed := make(reversedPalette, len(tones))
	for i, tone := range tones {
		reversed[len(tones)-1-i] = lighter(tone)
	}
	m := plotter.NewHeatMap(g, reversed)
	m.Min, m.Max = 0, max(largest, 1)
	m.Rasterized = false
	text := must(plotter.NewLabels(at))
	for i := range text.TextStyle {
		text.TextStyle[i].Color = color.Gray{20} // on a dark page, too: its ground is a cell
		text.TextStyle[i].Font.Variant, text.TextStyle[i].XAlign, text.TextStyle[i].YAlign = "Sans", draw.XCenter,
			draw.YCenter
	}
	c.Add(m, text)
	c.NominalX(columns...)
	upwards := make([]string, len(rows))
	for i, name := range rows {
		upwards[len(rows)-1-i] = name
	}
	c.NominalY(upwards...)
	c.X.Padding, c.Y.Padding = 0, 0
}

// lighter mixes a colour with as much white, so that a dark number on it has a contrast of 4.5 and more.
func lighter(c color.Color) color.Color {
	r, g, b, _ := c.RGBA()
	mixed := func(v uint32) uint8 { return uint8((v>>8 + 255) / 2) }
	return color.RGBA{mixed(r), mixed(g), mixed(b), 255}
}

type reversedPalette []color.Color

// Colors implements palette.Palette.
func (p reversedPalette) Colors() []color.Color { return p }

// cells is a table as a plotter.GridXYZ: rows go upwards.
type cells struct {
	rows, columns int
	values        [][]float64
}

// Dims implements plotter.GridXYZ.
func (g *cells) Dims() (columns, rows int) { return g.columns, g.rows }

// Z implements plotter.GridXYZ.
func (g *cells) Z(x, y int) float64 { return g.values[g.rows-1-y][x] }

// X implements plotter.GridXYZ.
func (g *cells) X(x int) float64 { return float64(x) }

// Y implements plotter.GridXYZ.
func (g *cells) Y(y int) float64 { return float64(y) }
