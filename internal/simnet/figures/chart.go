package figures

import (
	"image/color"
	"strconv"
	"time"

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

// palette is that of Okabe and Ito, which colour-blind readers can tell apart.
var palette = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255}, color.RGBA{204, 121, 167, 255},
	color.RGBA{230, 159, 0, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{110, 110, 110, 255}, color.RGBA{148, 103, 40, 255},
}

var shapes = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{},
}

// claimColor is the colour of what a paper says, always dashed.
var claimColor = color.RGBA{60, 60, 60, 255}

// point is a measured pair.
type point = plotter.XY

// chart is a plot in the making.
type chart struct {
	*plot.Plot
	series, claims int
}

func newChart(title, x, y string) *chart {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(8)
	p.X.Padding, p.Y.Padding = vg.Points(4), vg.Points(4)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(6), -vg.Points(4)
	for _, style := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.Legend.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font} {
		style.Variant = "Sans"
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
	return &chart{Plot: p}
}

// line draws a measured series, a marker a point.
func (c *chart) line(name string, pts []point) {
	tone, shape := palette[c.series%len(palette)], shapes[c.series%len(shapes)]
	c.series++
	l, s := must2(plotter.NewLinePoints(plotter.XYs(pts)))
	l.Color, l.Width = tone, vg.Points(1.6)
	s.Color, s.Shape, s.Radius = tone, shape, vg.Points(3)
	c.Add(l, s)
	c.Legend.Add(name, l, s)
}

// claim draws what a paper says as a dashed line.
func (c *chart) claim(name string, pts ...point) {
	l := must(plotter.NewLine(plotter.XYs(pts)))
	l.Color, l.Width = claimColor, vg.Points(1.2)
	dashes := [][]vg.Length{{vg.Points(5), vg.Points(3)}, {vg.Points(1.5), vg.Points(2.5)}, {vg.Points(8), vg.Points(2), vg.Points(2), vg.Points(2)}}
	l.Dashes = dashes[c.claims%len(dashes)]
	c.claims++
	c.Add(l)
	c.Legend.Add(name, l)
}

// level draws a claim that holds for all x of a range.
func (c *chart) level(name string, x0, x1, y float64) {
	c.claim(name, point{X: x0, Y: y}, point{X: x1, Y: y})
}

// stack draws bars above one another, one name each, over labelled places.
func (c *chart) stack(labels []string, names []string, values [][]float64) {
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

// bars draws a bar a label, with its value on top.
func (c *chart) bars(labels []string, values []float64) {
	b := must(plotter.NewBarChart(plotter.Values(values), barWidth(len(labels))/2))
	b.Color, b.LineStyle.Width = palette[0], 0
	var at plotter.XYLabels
	for i, v := range values {
		at.XYs = append(at.XYs, point{X: float64(i), Y: v})
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

// logX makes the x axis logarithmic with a labelled tick at each of the given values.
func (c *chart) logX(label func(float64) string, at ...float64) {
	c.X.Scale, c.X.Tick.Marker = plot.LogScale{}, ticksAt(label, at)
}

func ticksAt(label func(float64) string, at []float64) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, v := range at {
		ticks = append(ticks, plot.Tick{Value: v, Label: label(v)})
	}
	return ticks
}

// plain and sizeLabel label ticks.
func plain(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func sizeLabel(v float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if v >= u.size {
			return plain(v/u.size) + " " + u.name
		}
	}
	return plain(v) + " B"
}

func percent(v float64) string { return strconv.FormatFloat(v*100, 'g', 3, 64) + " %" }

// doublings returns from, 2*from, ... up to to.
func doublings(from, to float64) []float64 {
	var all []float64
	for v := from; v <= to; v *= 2 {
		all = append(all, v)
	}
	return all
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

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
