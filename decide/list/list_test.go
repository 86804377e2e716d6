package list_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/list"
)

func TestLists(t *testing.T) {
	numbers := []int{3, 1, 2}
	odd := func(n int) bool { return n%2 == 1 }

	assert.Equal(t, []int{3, 1}, list.Where(numbers, odd))
	assert.Nil(t, list.Where([]int{2}, odd), "so that a decision without any says null, as before")
	assert.Equal(t, 2, list.Count(numbers, odd))
	assert.Equal(t, []int{1, 2, 3}, list.Sorted(numbers, cmp.Compare))
	assert.Equal(t, []int{3, 1, 2}, numbers, "the list given stays as it is")
}

func TestOrders(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)

	assert.Equal(t, -1, list.FalseFirst(false, true))
	assert.Equal(t, 1, list.FalseFirst(true, false))
	assert.Equal(t, 0, list.FalseFirst(true, true))
	assert.Equal(t, -1, list.KnownFirst(early, late))
	assert.Equal(t, -1, list.KnownFirst(late, time.Time{}), "unknown comes last")
	assert.Equal(t, 1, list.KnownFirst(time.Time{}, early))
	assert.Equal(t, 0, list.KnownFirst(time.Time{}, time.Time{}))
}
