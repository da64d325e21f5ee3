package chart

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInksFollowThePage: nothing that is drawn keeps an ink of the light page.
func TestInksFollowThePage(t *testing.T) {
	c := New("Title", "x, s", "y")
	c.Line("measured", []Point{{X: 1, Y: 1}, {X: 2, Y: 3}})
	c.Claim("the paper's", Point{X: 1, Y: 2}, Point{X: 2, Y: 2})
	path := filepath.Join(t.TempDir(), "chart.svg")
	require.NoError(t, c.Save(path))
	drawn, err := os.ReadFile(path)
	require.NoError(t, err)
	var picture struct {
		Style string   `xml:"style"`
		Text  []string `xml:"g>g>text"`
	}
	require.NoError(t, xml.Unmarshal(drawn, &picture))
	require.Contains(t, picture.Style, "prefers-color-scheme:dark")
	require.Contains(t, picture.Text, "Title")
	_, body, _ := strings.Cut(string(drawn), "</style>")
	for _, i := range inks {
		require.Contains(t, body, "var(--"+i.name+")")
		require.NotContains(t, body, i.light)
	}
}

func TestRate(t *testing.T) {
	for bps, want := range map[float64]string{
		0: "no limit", 500: "500 bit/s", 200e6: "200 Mbit/s", 10e9: "10 Gbit/s", 1.5e12: "1.5 Tbit/s",
	} {
		require.Equal(t, want, Rate(bps))
	}
}
