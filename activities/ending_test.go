package activities_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/activities"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The first instances of a class teach how long the next ones take, also where each look comes late.
func TestLooksAtInstancesThatEnd(t *testing.T) {
	t.Parallel()
	for _, ends := range []time.Duration{50 * time.Millisecond, time.Second, 5 * time.Second, 40 * time.Second, 5 * time.Minute} {
		for _, lag := range []time.Duration{0, 40 * time.Millisecond, 250 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, lag %s", ends, lag), func(t *testing.T) {
				t.Parallel()
				var e activities.Endings
				for n := range 60 {
					seen, looks := e.Looks("shop/small", epoch.Add(time.Duration(n)*time.Hour), ends, lag)
					late := seen - ends
					if n < 10 {
						assert.LessOrEqual(t, late, max(230*time.Millisecond, ends/2)+2*lag, "instance %d: hardly anybody knows anything yet", n)
						continue
					}
					assert.LessOrEqual(t, late, max(100*time.Millisecond, ends/8)+lag, "instance %d", n)
					assert.LessOrEqual(t, looks, 4+int32(ends/(15*time.Second)), "instance %d", n)
				}
			})
		}
	}
}

// Of ten that end at once, one tries whether a shorter time does; nine look once they should be gone. So their time is known to a
// sixteenth, and hardly any looks twice.
func TestOneOfManyTriesAShorterTime(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{0, 60 * time.Millisecond} {
		var e activities.Endings
		for wave := range 20 {
			seen, looks := e.Together("shop/small", epoch.Add(time.Duration(wave)*time.Hour), slices.Repeat([]time.Duration{8 * time.Second}, 10), lag)
			late := slices.Max(seen) - 8*time.Second
			if wave > 0 {
				assert.LessOrEqual(t, looks, int32(2*10+2), "wave %d: the call, one look, and those of one that tried", wave)
				assert.LessOrEqual(t, late, 4*time.Second, "wave %d", wave)
			}
			if wave >= 5 {
				assert.LessOrEqual(t, late, 8*time.Second/16+2*lag, "wave %d", wave)
			}
		}
	}
}

// Ten of which nobody knew anything are looked at at ten times, and teach more together than one: the next ten are seen to be gone at once.
func TestThoseOfWhichNobodyKnewTeachTogether(t *testing.T) {
	t.Parallel()
	for _, ends := range []time.Duration{700 * time.Millisecond, time.Second, 3 * time.Second, 8 * time.Second} {
		var e activities.Endings
		e.Together("shop/small", epoch, slices.Repeat([]time.Duration{ends}, 10), 0)
		seen, looks := e.Together("shop/small", epoch.Add(time.Hour), slices.Repeat([]time.Duration{ends}, 10), 0)
		assert.LessOrEqual(t, slices.Max(seen)-ends, max(ends/8, 100*time.Millisecond), "%s", ends)
		assert.LessOrEqual(t, looks, int32(22), "%s", ends)
	}
}

// Whatever those teach meanwhile that end as usual, or late.
func TestOneAtATimeTriesAShorterTime(t *testing.T) {
	t.Parallel()
	var e activities.Endings
	e.Looks("shop/small", epoch, 8*time.Second, 0)
	began := epoch.Add(time.Hour)
	assert.True(t, e.Tries("shop/small", began))
	for n, ends := range []time.Duration{8 * time.Second, 16 * time.Second, time.Minute, 9 * time.Second} {
		at := began.Add(time.Duration(n+1) * time.Second)
		e.Looks("shop/small", at, ends, 0)
		assert.False(t, e.Tries("shop/small", at), "one that ended after %s", ends)
	}
	assert.True(t, e.Tries("shop/small", began.Add(time.Minute)), "then its time is over")
}

// One that was asked for before another was slow has tried nothing, and takes nothing back.
func TestWhoTriesNothingTeachesNoShorterTime(t *testing.T) {
	t.Parallel()
	var e activities.Endings
	e.Looks("shop/small", epoch, 8*time.Second, 0)
	e.Tries("shop/small", epoch.Add(time.Hour)) // under way, so that nobody else tries
	before, _ := e.Looks("shop/small", epoch.Add(time.Hour), 8*time.Second, 0)
	e.Overtaken("shop/small", epoch.Add(time.Hour), before+time.Second)
	after, _ := e.Looks("shop/small", epoch.Add(time.Hour), 8*time.Second, 0)
	assert.Greater(t, after, before, "the usual time is longer now")
}

// Where instances take now this long and now that, most are looked at once, and none much too late.
func TestInstancesThatTakeMoreAndLessLong(t *testing.T) {
	t.Parallel()
	var e activities.Endings
	var looks int32
	for n := range 200 {
		ends := time.Duration(800+n*37%400) * 10 * time.Millisecond // 8 to 12 s
		seen, times := e.Looks("shop/small", epoch.Add(time.Duration(n)*time.Hour), ends, 0)
		if n < 10 {
			continue
		}
		looks += times
		assert.LessOrEqual(t, seen-ends, 6*time.Second, "instance %d", n)
	}
	assert.LessOrEqual(t, float64(looks)/190, 3.0, "the call, a look, and one look in two that came too early or tried")
}

func TestAnInstanceThatWasSlowOnceHoldsUpNobody(t *testing.T) {
	t.Parallel()
	var e activities.Endings
	e.Looks("shop/small", epoch, time.Second, 0)
	e.Looks("shop/small", epoch.Add(time.Hour), time.Hour, 0)
	seen, _ := e.Looks("shop/small", epoch.Add(3*time.Hour), time.Second, 0)
	assert.LessOrEqual(t, seen, 16*time.Second)

	other, _ := e.Looks("shop/large", epoch, time.Second, 0)
	assert.Less(t, other, 2*time.Second, "each class has its own time")
	_, looks := e.Looks("shop/instant", epoch, 0, 0)
	assert.EqualValues(t, 1, looks)
}

func TestTheTimesOfClassesAreForgottenBeforeTheyAreTooMany(t *testing.T) {
	t.Parallel()
	var e activities.Endings
	e.Looks("first", epoch, 10*time.Second, 0)
	_, knowing := e.Looks("first", epoch.Add(time.Hour), 10*time.Second, 0)
	for n := range 2000 {
		e.Looks(fmt.Sprint("class ", n), epoch, time.Second, 0)
	}
	_, again := e.Looks("first", epoch.Add(2*time.Hour), 10*time.Second, 0)
	assert.Greater(t, again, knowing, "as of a class that is new")
}
