package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A worker whose clock is ten minutes ahead of the server's must not end the time of a means ten minutes early.
func TestTheTimeOfAMeansIsThatOfTheServer(t *testing.T) {
	server := time.Now()
	until, ahead := server.Add(30*time.Second), server.Add(10*time.Minute)
	assert.Equal(t, ahead.Add(30*time.Second), byOwnClock(until, server, ahead))
	assert.Equal(t, until, byOwnClock(until, server, server.Add(-time.Minute)), "a clock that is behind ends no time early")
	assert.Equal(t, until, byOwnClock(until, time.Time{}, ahead), "the server does not say")
	assert.Zero(t, byOwnClock(time.Time{}, server, ahead), "no end")
}
