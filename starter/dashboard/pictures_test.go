package dashboard

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

// writesPictures makes TestPictures write the pictures of docs/dashboard.md:
//
//	go test ./starter/dashboard -run TestPictures -args -pictures
var writesPictures = flag.Bool("pictures", false, "write the pictures of docs/dashboard.md")

// maxPictureBytes is the largest size of a picture in the docs.
const maxPictureBytes = 150_000

// Each situation is shown without an error of the browser: the policy of the pages allows what they need.
func TestPictures(t *testing.T) {
	if testing.Short() && !*writesPictures {
		t.Skip("starts a browser")
	}
	b := newBrowser(t)
	for _, s := range situations() {
		if !*writesPictures && s.name == "clusters" { // slow to render as a picture, and tested without a browser
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			w := newSituation(t, s)
			b.t = t
			width := s.width
			if width == 0 {
				width = 1180
			}
			b.open(w.address("/?token="+w.guard.token), width, s.height, s.isDark)
			b.open(w.address(s.path), width, s.height, s.isDark)
			assert.Equal(t, true, b.value(`document.documentElement.classList.contains("js")`), "the script runs")
			require.Eventually(t, func() bool {
				return b.value(`document.getElementById("live").textContent`) == "live"
			}, time.Minute, 50*time.Millisecond, "the page gets the first event, and replaces its main part")
			assert.LessOrEqual(t, b.value("document.documentElement.scrollWidth"), float64(width), "wider than the screen")
			data := b.picture(width, s.height)
			b.setWidth(360, s.height)
			assert.LessOrEqual(t, b.value("document.documentElement.scrollWidth"), 360.0, "wider than a telephone")
			b.open("about:blank", width, s.height, s.isDark) // closes the stream of events
			b.mutex.Lock()
			assert.Empty(t, b.errors)
			b.mutex.Unlock()
			shape, err := png.DecodeConfig(bytes.NewReader(data))
			require.NoError(t, err)
			assert.Equal(t, width, shape.Width)
			if *writesPictures {
				data = withPalette(t, data)
				assert.LessOrEqual(t, len(data), maxPictureBytes)
				require.NoError(t, os.WriteFile(filepath.Join("../../docs/dashboard", s.name+".png"), data, 0o644))
			}
		})
	}
}

// newSituation starts a server that shows a situation.
func newSituation(t *testing.T, s situation) *backend {
	t.Helper()
	var objects []runtime.Object
	for _, p := range s.pools {
		objects = append(objects, p.objects()...)
	}
	w := newBackend(t, s.workerDown, objects...)
	w.withDrain(s.runs, s.drainWorkflow, s.drain)
	return w
}

// withPalette returns a picture with 256 colours, which needs a third of the bytes. Of similar colours, the most
// frequent one is kept, so that a rare colour has a place, too.
func withPalette(t *testing.T, data []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	counts := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	for y := range from.Bounds().Dy() {
		for x := range from.Bounds().Dx() {
			counts[at(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(
			cmp.Compare(counts[b], counts[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B),
		)
	})
	var palette color.Palette
	similar := map[[3]uint8]bool{}
	const exact = 24 // the colours of areas are not changed
	for i, c := range colors {
		if key := [3]uint8{c.R / 24, c.G / 24, c.B / 24}; i < exact || !similar[key] && len(palette) < 256 {
			similar[key], palette = true, append(palette, c)
		}
	}
	nearest := map[color.RGBA]uint8{}
	to := image.NewPaletted(from.Bounds(), palette)
	for y := range from.Bounds().Dy() {
		for x := range from.Bounds().Dx() {
			c := at(x, y)
			if _, known := nearest[c]; !known {
				nearest[c] = uint8(palette.Index(c))
			}
			to.SetColorIndex(x, y, nearest[c])
		}
	}
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to))
	return out.Bytes()
}
