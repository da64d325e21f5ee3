package chart

import (
	"errors"
	"os"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// SaveSVG writes the chart into a file.
func (c *Chart) SaveSVG(path string) error {
	svg := vgsvg.New(width, height)
	c.Draw(within(svg))
	return write(path, svg)
}

// SavePNG writes the chart into a file.
func (c *Chart) SavePNG(path string) error {
	png := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(144))
	c.Draw(within(png))
	return write(path, vgimg.PngCanvas{Canvas: png})
}

// within leaves a margin, without which a tick's label at the end of an axis is cut off.
func within(c vg.CanvasSizer) draw.Canvas {
	const m = vg.Centimeter / 4
	return draw.Crop(draw.New(c), m, -3*m, m, -m)
}

func write(path string, canvas vg.CanvasWriterTo) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(f)
	return errors.Join(err, f.Close())
}
