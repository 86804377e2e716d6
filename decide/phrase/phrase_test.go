package phrase_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/duration"

	"millwright/decide/phrase"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestTimeTexts(t *testing.T) {
	assert.Equal(t, "13:00:00 UTC", phrase.ClockText(noon.Add(time.Hour).In(time.FixedZone("CET", 3600)), noon))
	assert.Equal(t, "2026-01-02 12:00:00 UTC", phrase.ClockText(noon.Add(24*time.Hour), noon))
	assert.Equal(t, "2026-01-01 12:00:00 UTC", phrase.ClockText(noon, time.Time{}))
	assert.Equal(t, "12:14:00 UTC (in 14m)", phrase.TimeText(noon.Add(14*time.Minute), noon))
	assert.Equal(t, "11:46:00 UTC (14m ago)", phrase.TimeText(noon.Add(-14*time.Minute), noon))
	assert.Equal(t, noon, phrase.LaterTime(noon.Add(-1), noon))
	assert.Equal(t, noon, phrase.LaterTime(noon, noon.Add(-1)))
}

func TestTimeTextWritesHoursAsInASpec(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for d, says := range map[time.Duration]string{
		time.Hour - time.Second:     "59m",
		time.Hour:                   "1h",
		105 * time.Minute:           "1h45m",
		2*time.Hour - time.Second:   "2h",
		3*time.Hour - time.Second:   "3h",
		3*time.Hour + 5*time.Minute: "3h5m",
	} {
		assert.Contains(t, phrase.TimeText(now.Add(d), now), " (in "+says+")")
		assert.Contains(t, phrase.TimeText(now.Add(-d), now), " ("+says+" ago)")
	}
}

func TestAgeTextMatchesKubectl(t *testing.T) {
	for d := time.Duration(0); d < 12*365*24*time.Hour; d = d*21/20 + 700*time.Millisecond {
		assert.Equal(t, duration.HumanDuration(d), phrase.AgeText(d), d.String())
	}
}

func TestDurationTextIsShortAndParsable(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "20s": 20 * time.Second, "5m": 5 * time.Minute, "1m30s": 90 * time.Second, "2h": 2 * time.Hour, "1h30m": 90 * time.Minute,
		"1h0m5s": time.Hour + 5*time.Second, "96h": 96 * time.Hour, "-1h": -time.Hour, "1.5s": 1500 * time.Millisecond, "10s": 10 * time.Second, "10m": 10 * time.Minute,
	} {
		assert.Equal(t, want, phrase.DurationText(d))
		read, err := time.ParseDuration(want)
		require.NoError(t, err)
		assert.Equal(t, d, read)
	}
}

func TestTruncateJoinAndCountTexts(t *testing.T) {
	assert.Equal(t, "short", phrase.TruncateText("short", 5))
	for _, text := range []string{strings.Repeat("a", 2000), strings.Repeat("ä", 2000), strings.Repeat("a", 995) + strings.Repeat("€", 9)} {
		cut := phrase.TruncateMessage(text)
		assert.LessOrEqual(t, len(cut), 1000)
		assert.True(t, utf8.ValidString(cut))
		assert.True(t, strings.HasSuffix(cut, "…"))
	}
	assert.Equal(t, " by ann (new image: bad)", phrase.ActorText("ann: new image: bad"))
	assert.Equal(t, " (ann)", phrase.ActorText("ann"))
	assert.Empty(t, phrase.ActorText(""))
	assert.Equal(t, "1 pod", phrase.CountText(1, "pod"))
	assert.Equal(t, "0 pods", phrase.CountText(0, "pod"))
	assert.Equal(t, "a, b", phrase.JoinNames([]string{"a", "b"}, 2, ", "))
	assert.Equal(t, "a and 2 more", phrase.JoinNames([]string{"a", "b", "c"}, 1, ", "))
}

func TestWebhookDenials(t *testing.T) {
	for message, want := range map[string]bool{
		`admission webhook "w.example.com" denied the request: no`:                              true,
		`admission webhook "w.example.com" denied the request without explanation`:              true,
		`admission webhook "w.example.com" does not support dry run`:                            false,
		`"web" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied the request`: false,
		`failed calling webhook "w.example.com": connection refused`:                            false,
	} {
		assert.Equal(t, want, phrase.IsWebhookDenial(message), message)
	}
}
