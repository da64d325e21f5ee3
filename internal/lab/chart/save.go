package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// inks are the colours of text, frame and grid on a light page, and on a dark one.
var inks = []struct{ name, light, dark string }{
	{"ink", "#000000", "#E6EDF3"},
	{"soft", hex(claimColor), "#C5CDD6"},
	{"grid", hex(gridColor), "#30363D"},
}

// hex writes a colour as an SVG has it.
func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// Save writes the chart as an SVG without a ground of its own. Its inks follow the reader's screen: light on a dark
// page.
func (c *Chart) Save(path string) error {
	c.BackgroundColor = nil
	svg := vgsvg.New(width, height)
	c.Draw(within(svg))
	var drawn bytes.Buffer
	if _, err := svg.WriteTo(&drawn); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(adaptive(drawn.String())), 0o644)
}

// adaptive replaces the inks of an SVG by variables, and says what they are on either page.
func adaptive(svg string) string {
	var light, dark strings.Builder
	svg = strings.ReplaceAll(svg, "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,Helvetica,sans-serif")
	for _, i := range inks {
		svg = strings.ReplaceAll(svg, i.light, "var(--"+i.name+")")
		light.WriteString("--" + i.name + ":" + i.light + ";")
		dark.WriteString("--" + i.name + ":" + i.dark + ";")
	}
	style := "<style>svg{" + light.String() + "}@media (prefers-color-scheme:dark){svg{" + dark.String() + "}}</style>\n"
	at := strings.Index(svg, "<svg")
	at += strings.IndexByte(svg[at:], '>') + 1
	// What has no colour of its own is black: give it the ink.
	return svg[:at] + "\n" + style + `<g fill="var(--ink)">` + svg[at:strings.LastIndex(svg, "</svg>")] + "</g>\n</svg>\n"
}

// within leaves a margin, without which a tick's label at the end of an axis is cut off.
func within(c vg.CanvasSizer) draw.Canvas {
	const m = vg.Centimeter / 4
	return draw.Crop(draw.New(c), m, -3*m, m, -m)
}
