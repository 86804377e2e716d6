package activities_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/activities"
)

// The first instances of a class teach how long the next ones take.
func TestLooksAtInstancesThatEnd(t *testing.T) {
	t.Parallel()
	for _, ends := range []time.Duration{50 * time.Millisecond, time.Second, 5 * time.Second, 40 * time.Second, 5 * time.Minute} {
		t.Run(ends.String(), func(t *testing.T) {
			t.Parallel()
			var e activities.Endings
			for n := range 40 {
				seen, looks := e.Looks("shop/small", ends)
				late := seen - ends
				if n < 4 {
					assert.LessOrEqual(t, late, max(230*time.Millisecond, ends/2), "instance %d: hardly anybody knows anything yet", n)
					continue
				}
				assert.LessOrEqual(t, late, max(200*time.Millisecond, ends/8), "instance %d", n)
				assert.LessOrEqual(t, looks, 4+int32(ends/(15*time.Second)), "instance %d", n)
			}
		})
	}
}

func TestAnInstanceThatWasSlowOnceHoldsUpNobody(t *testing.T) {
	t.Parallel()
	var e activities.Endings
	e.Looks("shop/small", time.Second)
	e.Looks("shop/small", time.Hour)
	seen, _ := e.Looks("shop/small", time.Second)
	assert.LessOrEqual(t, seen, 16*time.Second)

	other, _ := e.Looks("shop/large", time.Second)
	assert.Less(t, other, 2*time.Second, "each class has its own time")
	_, looks := e.Looks("shop/instant", 0)
	assert.EqualValues(t, 1, looks)
}

func TestTheTimesOfClassesAreForgottenBeforeTheyAreTooMany(t *testing.T) {
	t.Parallel()
	var e activities.Endings
	e.Looks("first", 10*time.Second)
	_, knowing := e.Looks("first", 10*time.Second)
	for n := range 2000 {
		e.Looks(fmt.Sprint("class ", n), time.Second)
	}
	_, again := e.Looks("first", 10*time.Second)
	assert.Greater(t, again, knowing, "as of a class that is new")
}
