package cloud

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
)

// faultSubject has the names of machine and class that a call is about. Faults can match them.
type faultSubject struct{ machine, class string }

// callGate decides which calls are refused: rate limits, then faults.
type callGate struct {
	buckets map[admin.Operation]*tokenBucket
	faults  []*activeFault
}

// activeFault is a Fault that is set, with its end, the number of its calls so far, and its random numbers.
type activeFault struct {
	admin.Fault
	until time.Time // end of the fault; zero: it has no end
	seen  int       // number of matching calls so far
	dice  *rand.Rand
}

func newFault(f admin.Fault, now time.Time) *activeFault {
	use := &activeFault{Fault: f, dice: rand.New(rand.NewPCG(f.Seed, 0))} // a test can repeat these random numbers
	if f.For > 0 {
		use.until = now.Add(time.Duration(f.For))
	}
	return use
}

// appliesTo reports whether the fault applies to this call, and counts the call.
func (f *activeFault) appliesTo(op admin.Operation, about faultSubject) bool {
	if f.Operation != op || (f.Machine != "" && f.Machine != about.machine) || (f.Class != "" && f.Class != about.class) {
		return false
	}
	f.seen++
	if f.Every > 1 && f.seen%f.Every != 0 {
		return false
	}
	return f.Probability == 0 || f.dice.Float64() < f.Probability
}

func (f *activeFault) refusal() *provider.Error {
	message := f.Message
	if message == "" {
		message = "a fault was asked for"
	}
	return &provider.Error{Code: provider.ParseCode(f.Code), Message: message, RetryAfter: time.Duration(f.RetryAfter)}
}

// matchingFault returns the fault that applies to this call, nil for none.
func (g *callGate) matchingFault(op admin.Operation, about faultSubject, now time.Time) *activeFault {
	g.faults = slices.DeleteFunc(g.faults, func(f *activeFault) bool { return isPast(f.until, now) })
	for i, f := range g.faults {
		if !f.appliesTo(op, about) {
			continue
		}
		if f.Count > 0 {
			if f.Count--; f.Count == 0 {
				g.faults = slices.Delete(g.faults, i, i+1)
			}
		}
		return f
	}
	return nil
}

// tokenBucket is a token bucket.
type tokenBucket struct {
	tokens float64
	filled time.Time
}

// takeToken takes a token of the operation's bucket. If there is none, it refuses the call, and says when there will be
// one.
func (g *callGate) takeToken(op admin.Operation, limit admin.RateLimit, now time.Time) error {
	b := g.buckets[op]
	if b == nil {
		b = &tokenBucket{tokens: float64(limit.Burst), filled: now}
		if g.buckets == nil {
			g.buckets = map[admin.Operation]*tokenBucket{}
		}
		g.buckets[op] = b
	}
	b.tokens = min(float64(limit.Burst), b.tokens+now.Sub(b.filled).Seconds()*limit.PerSecond)
	b.filled = now
	if b.tokens >= 1 {
		b.tokens--
		return nil
	}
	code := provider.Unavailable
	if limit.Code != "" {
		code = provider.ParseCode(limit.Code)
	}
	return &provider.Error{
		Code:       code,
		Message:    "too many " + string(op) + " requests",
		RetryAfter: time.Duration((1 - b.tokens) / limit.PerSecond * float64(time.Second)),
	}
}

// admit counts a call, waits while calls of that operation hang, and returns an error if the call is refused. The fault
// that it returns applies after the call has taken effect.
func (c *Cloud) admit(ctx context.Context, op admin.Operation, about faultSubject) (*activeFault, error) {
	c.mu.Lock()
	now := time.Now()
	if c.stats.Calls == nil {
		c.stats.Calls = map[admin.Operation]int{}
	}
	c.stats.Calls[op]++
	if limit, limited := c.behaviour.RateLimits[op]; limited {
		if err := c.gate.takeToken(op, limit, now); err != nil {
			c.mu.Unlock()
			return nil, err
		}
	}
	struck := c.gate.matchingFault(op, about, now)
	c.mu.Unlock()
	if struck != nil && !struck.After {
		return nil, struck.refusal()
	}
	return struck, c.waitWhileHanging(ctx, op, admin.BeforeEffect)
}

// waitWhileHanging waits while calls of that operation hang at that point. The error says that the client is gone or
// that the cloud stops.
func (c *Cloud) waitWhileHanging(ctx context.Context, op admin.Operation, point admin.HangPoint) error {
	for {
		c.mu.Lock()
		hangs, changed := c.behaviour.Hangs[op] == point, c.changed
		c.mu.Unlock()
		if !hangs {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return provider.Errorf(provider.Canceled, "the client went away")
		case <-c.ctx.Done():
			return provider.Errorf(provider.Unavailable, "the cloud is stopping")
		}
	}
}

// AddFault makes calls fail.
func (c *Cloud) AddFault(f admin.Fault) error {
	if err := validateFault(f); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate.faults = append(c.gate.faults, newFault(f, time.Now()))
	return nil
}

// Faults returns the faults that are not used up.
func (c *Cloud) Faults() []admin.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	faults := []admin.Fault{}
	for _, f := range c.gate.faults {
		if !isPast(f.until, time.Now()) {
			faults = append(faults, f.Fault)
		}
	}
	return faults
}

// ClearFaults removes every fault.
func (c *Cloud) ClearFaults() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate.faults = nil
}
