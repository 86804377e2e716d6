package dashboard

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// luminance returns the relative luminance of a colour, as WCAG 2 defines it.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		require.NoError(t, err)
		c := float64(n) / 255
		if c <= 0.03928 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// Each text has a contrast of at least 4.5:1 to its background, in light and in dark colours, and the parts of a bar
// differ from the card by 3:1 or have a pattern that does.
func TestColoursHaveContrast(t *testing.T) {
	r, err := newRenderer()
	require.NoError(t, err)
	light, rest, found := strings.Cut(r.style, "@media (prefers-color-scheme: dark)")
	require.True(t, found)
	dark, _, found := strings.Cut(rest, "* { box-sizing")
	require.True(t, found)
	for name, text := range map[string]string{"light": light, "dark": dark} {
		t.Run(name, func(t *testing.T) {
			colours := map[string]string{}
			for _, found := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(text, -1) {
				colours[found[1]] = found[2]
			}
			require.GreaterOrEqual(t, len(colours), 20)
			for _, pair := range [][2]string{
				{"text", "page"},
				{"text", "card"},
				{"soft", "page"},
				{"soft", "card"},
				{"link", "page"},
				{"link", "card"},
				{"red", "red-back"},
				{"amber", "amber-back"},
				{"blue", "blue-back"},
				{"green", "green-back"},
				{"grey", "grey-back"},
				{"red", "card"},
				{"blue", "card"},
				{"blue", "page"},
				{"red", "page"},
				{"card", "blue"},
			} {
				assert.GreaterOrEqual(t, contrast(t, colours[pair[0]], colours[pair[1]]), 4.5, "%s on %s", pair[0], pair[1])
			}
			for _, part := range []string{"bar-new", "bar-old", "bar-failed"} {
				assert.GreaterOrEqual(t, contrast(t, colours[part], colours["card"]), 3.0, part)
			}
			assert.GreaterOrEqual(t, contrast(t, colours["on-mark"], colours["bar-old"]), 3.0)
		})
	}
}

// No text is smaller than 14 px, and no element hides its focus.
func TestTextsAreNotSmall(t *testing.T) {
	r, err := newRenderer()
	require.NoError(t, err)
	sizes := regexp.MustCompile(`font-size: ([0-9.]+)(rem|px)`).FindAllStringSubmatch(r.style, -1)
	require.Greater(t, len(sizes), 10)
	for _, found := range sizes {
		size, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		if found[2] == "rem" {
			size *= 16
		}
		assert.GreaterOrEqual(t, size, 14.0, found[0])
	}
	assert.Contains(t, r.style, "a:focus-visible, button:focus-visible, input:focus-visible, select:focus-visible")
	assert.Contains(t, r.style, "prefers-color-scheme: dark")
}
