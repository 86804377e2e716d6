package cache_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/observe/cache"
)

func TestCompareVersions(t *testing.T) {
	inOrder := []string{
		"v1.9.0",
		"v1.31",
		"v1.31.1",
		"v1.31.2-beta.1",
		"v1.31.2",
		"v1.31.2+vendor.1",
		"v1.31.9",
		"v1.31.10",
		"v1.32.0-eks-1",
		"v2.0.0",
	}
	mixed := slices.Clone(inOrder)
	slices.Sort(mixed)
	assert.NotEqual(t, inOrder, mixed)
	slices.SortFunc(mixed, cache.CompareVersions)
	assert.Equal(t, inOrder, mixed)
	for _, same := range [][2]string{{"v1.31.2", "1.31.2"}, {"v1.31", "v1.31.0"}, {"latest", "latest"}, {"", ""}} {
		assert.Zero(t, cache.CompareVersions(same[0], same[1]), same)
	}
	assert.NotZero(t, cache.CompareVersions("latest", "v1.31.2"), "a version that cannot be parsed")
}
