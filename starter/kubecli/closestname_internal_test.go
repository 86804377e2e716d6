package kubecli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestClosestName(t *testing.T) {
	names := []string{"web-7f9c4-x2b8q", "web-7f9c4-aaaaa", "db-1", "web"}
	for wrong, right := range map[string]string{
		"web-7f9c4-x2b8g":    "web-7f9c4-x2b8q",
		"web-7f9c4-x2bq8":    "web-7f9c4-x2b8q",
		"web-7f9c4-2b8q":     "web-7f9c4-x2b8q",
		"wbe":                "web",
		"webb":               "web",
		"db":                 "db-1", // the only one that begins so
		"web-7f9c4":          "",     // two begin so
		"bd":                 "",
		"nothing-like-these": "",
		"":                   "",
	} {
		assert.Equal(t, right, closestName(wrong, names), wrong)
	}
	assert.Equal(t, "ab", closestName("aa", []string{"ab", "ac"}), "the first of equally close names")
	assert.Empty(t, closestName("a", nil))
}
