// Package chart draws the plots of simulations and experiments, all in one style.
package chart

import (
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Size of a chart on paper.
const (
	width  = 17 * vg.Centimeter
	height = 10.5 * vg.Centimeter
)

// palette is by Okabe and Ito: colour-blind readers can tell its colours apart.
var palette = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255},
	color.RGBA{230, 159, 0, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{110, 110, 110, 255},
	color.RGBA{148, 103, 40, 255},
}

var shapes = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{},
	draw.CrossGlyph{}, draw.PlusGlyph{},
}

// claimColor is the colour of what a paper says, always dashed.
var claimColor = color.RGBA{60, 60, 60, 255}

// gridColor is the grid's.
var gridColor = color.RGBA{225, 225, 225, 255}

// Point is a measured pair.
type Point = plotter.XY

// Chart is a plot in the making.
type Chart struct {
	*plot.Plot
	series, claims int
}

// New makes an empty chart with the titles of its axes.
func New(title, x, y string) *Chart {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(8)
	p.X.Padding, p.Y.Padding = vg.Points(4), vg.Points(4)
	p.Y.Tick.Marker = evenTicks{}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(6), -vg.Points(4)
	for _, style := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.Legend.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font} {
		style.Variant = "Sans"
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = gridColor, gridColor
	p.Add(grid)
	return &Chart{Plot: p}
}

// Line draws a measured series, a marker a point.
func (c *Chart) Line(name string, pts []Point) {
	tone, shape := palette[c.series%len(palette)], shapes[c.series%len(shapes)]
	c.series++
	l, s := must2(plotter.NewLinePoints(plotter.XYs(pts)))
	l.Color, l.Width = tone, vg.Points(1.6)
	s.Color, s.Shape, s.Radius = tone, shape, vg.Points(3)
	c.Add(l, s)
	c.Legend.Add(name, l, s)
}

// Claim draws what a paper says as a dashed line.
func (c *Chart) Claim(name string, pts ...Point) {
	l := must(plotter.NewLine(plotter.XYs(pts)))
	l.Color, l.Width = claimColor, vg.Points(1.2)
	dashes := [][]vg.Length{{vg.Points(5), vg.Points(3)}, {vg.Points(1.5), vg.Points(2.5)},
		{vg.Points(8), vg.Points(2), vg.Points(2), vg.Points(2)}}
	l.Dashes = dashes[c.claims%len(dashes)]
	c.claims++
	c.Add(l)
	c.Legend.Add(name, l)
}

// Level draws a claim that holds for all x of a range.
func (c *Chart) Level(name string, x0, x1, y float64) {
	c.Claim(name, Point{X: x0, Y: y}, Point{X: x1, Y: y})
}

// Stack draws bars above one another, one name each, over labelled places.
func (c *Chart) Stack(labels []string, names []string, values [][]float64) {
	var below *plotter.BarChart
	for i, name := range names {
		b := must(plotter.NewBarChart(plotter.Values(values[i]), barWidth(len(labels))))
		b.Color, b.LineStyle.Width = palette[i], 0
		if below != nil {
			b.StackOn(below)
		}
		below = b
		c.Add(b)
		c.Legend.Add(name, b)
	}
	c.NominalX(labels...)
}

// Bars draws a bar a label, with its value on top.
func (c *Chart) Bars(labels []string, values []float64) {
	b := must(plotter.NewBarChart(plotter.Values(values), barWidth(len(labels))/2))
	b.Color, b.LineStyle.Width = palette[0], 0
	var at plotter.XYLabels
	for i, v := range values {
		at.XYs = append(at.XYs, Point{X: float64(i), Y: v})
		at.Labels = append(at.Labels, strconv.FormatFloat(v, 'f', 1, 64))
	}
	text := must(plotter.NewLabels(at))
	for i := range text.TextStyle {
		text.TextStyle[i].Font.Variant, text.TextStyle[i].XAlign = "Sans", draw.XCenter
	}
	text.Offset.Y = vg.Points(3)
	c.Add(b, text)
	c.NominalX(labels...)
	c.Y.Min = 0
}

func barWidth(n int) vg.Length { return 11 * vg.Centimeter / vg.Length(max(n, 2)) }

// LogX makes the x axis logarithmic with a labelled tick at each of the given values.
func (c *Chart) LogX(label func(float64) string, at ...float64) {
	c.X.Scale, c.X.Tick.Marker = plot.LogScale{}, TicksAt(label, at)
}

// evenTicks are 5 to 10 labelled ticks, 1, 2 or 5 times a power of 10 apart.
type evenTicks struct{}

// Ticks implements plot.Ticker.
func (evenTicks) Ticks(low, high float64) []plot.Tick {
	step := math.Pow10(int(math.Floor(math.Log10(high - low))))
	for _, part := range []float64{1, 2, 5, 10} {
		if (high-low)/(step/part) >= 5 {
			step /= part
			break
		}
	}
	var ticks []plot.Tick
	for i := math.Ceil(low / step); i*step <= high; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'g', 6, 64)})
	}
	return ticks
}

// TicksAt are labelled ticks at the given values alone.
func TicksAt(label func(float64) string, at []float64) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, v := range at {
		ticks = append(ticks, plot.Tick{Value: v, Label: label(v)})
	}
	return ticks
}

// Plain labels a number.
func Plain(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Size labels a number of bytes.
func Size(v float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if v >= u.size {
			return Plain(v/u.size) + " " + u.name
		}
	}
	return Plain(v) + " B"
}

// Rate labels bits per second; 0 is no limit.
func Rate(bps float64) string {
	if bps == 0 {
		return "no limit"
	}
	for _, u := range []struct {
		name string
		size float64
	}{{"Tbit/s", 1e12}, {"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}} {
		if bps >= u.size {
			return Plain(bps/u.size) + " " + u.name
		}
	}
	return Plain(bps) + " bit/s"
}

// Percent labels a share.
func Percent(v float64) string { return strconv.FormatFloat(v*100, 'g', 3, 64) + " %" }

// must returns v: the plotters return errors only for no points or such as are no numbers.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func must2[A, B any](a A, b B, err error) (A, B) {
	if err != nil {
		panic(err)
	}
	return a, b
}
