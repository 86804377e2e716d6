package list_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/list"
)

func TestListFunctions(t *testing.T) {
	numbers := []int{3, 1, 2}
	odd := func(n int) bool { return n%2 == 1 }

	assert.Equal(t, []int{3, 1}, list.Filter(numbers, odd))
	assert.Nil(t, list.Filter([]int{2}, odd), "so that a decision without any says null, as before")
	assert.Equal(t, 2, list.CountWhere(numbers, odd))
	assert.Equal(t, []int{1, 2, 3}, list.SortedCopy(numbers, cmp.Compare))
	assert.Equal(t, []int{3, 1, 2}, numbers, "the list given stays as it is")
}

func TestCompareFunctions(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)

	assert.Equal(t, -1, list.CompareFalseFirst(false, true))
	assert.Equal(t, 1, list.CompareFalseFirst(true, false))
	assert.Equal(t, 0, list.CompareFalseFirst(true, true))
	assert.Equal(t, -1, list.CompareTimesZeroLast(early, late))
	assert.Equal(t, -1, list.CompareTimesZeroLast(late, time.Time{}), "unknown comes last")
	assert.Equal(t, 1, list.CompareTimesZeroLast(time.Time{}, early))
	assert.Equal(t, 0, list.CompareTimesZeroLast(time.Time{}, time.Time{}))
}
