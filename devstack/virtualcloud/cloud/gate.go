package cloud

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
)

// subject is what faults can match in a call.
type subject struct{ machine, class string }

// gate decides which calls are refused: rate limits, then faults.
type gate struct {
	buckets map[admin.Operation]*bucket
	faults  []*fault
}

// fault is a Fault in use.
type fault struct {
	admin.Fault
	until time.Time // zero means without end
	seen  int       // matching calls
	dice  *rand.Rand
}

func newFault(f admin.Fault, now time.Time) *fault {
	use := &fault{Fault: f, dice: rand.New(rand.NewPCG(f.Seed, 0))} // random numbers that a test can repeat
	if f.For > 0 {
		use.until = now.Add(time.Duration(f.For))
	}
	return use
}

// strikes reports whether the fault applies to this call, and counts the call.
func (f *fault) strikes(op admin.Operation, about subject) bool {
	if f.Operation != op || (f.Machine != "" && f.Machine != about.machine) || (f.Class != "" && f.Class != about.class) {
		return false
	}
	f.seen++
	if f.Every > 1 && f.seen%f.Every != 0 {
		return false
	}
	return f.Probability == 0 || f.dice.Float64() < f.Probability
}

func (f *fault) refusal() *provider.Error {
	message := f.Message
	if message == "" {
		message = "a fault was asked for"
	}
	return &provider.Error{Code: provider.ParseCode(f.Code), Message: message, RetryAfter: time.Duration(f.RetryAfter)}
}

// strike returns the fault that applies to this call, nil for none.
func (g *gate) strike(op admin.Operation, about subject, now time.Time) *fault {
	g.faults = slices.DeleteFunc(g.faults, func(f *fault) bool { return happened(f.until, now) })
	for i, f := range g.faults {
		if !f.strikes(op, about) {
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

// bucket is a token bucket.
type bucket struct {
	tokens float64
	filled time.Time
}

// take takes a token, or refuses the call and says when there will be one.
func (g *gate) take(op admin.Operation, limit admin.RateLimit, now time.Time) error {
	b := g.buckets[op]
	if b == nil {
		b = &bucket{tokens: float64(limit.Burst), filled: now}
		if g.buckets == nil {
			g.buckets = map[admin.Operation]*bucket{}
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
func (c *Cloud) admit(ctx context.Context, op admin.Operation, about subject) (*fault, error) {
	c.mu.Lock()
	now := time.Now()
	if c.stats.Calls == nil {
		c.stats.Calls = map[admin.Operation]int{}
	}
	c.stats.Calls[op]++
	if limit, limited := c.behaviour.RateLimits[op]; limited {
		if err := c.gate.take(op, limit, now); err != nil {
			c.mu.Unlock()
			return nil, err
		}
	}
	struck := c.gate.strike(op, about, now)
	c.mu.Unlock()
	if struck != nil && !struck.After {
		return nil, struck.refusal()
	}
	return struck, c.hang(ctx, op, admin.BeforeEffect)
}

// hang waits while calls of that operation hang at that point. The error says that the client is gone or that the cloud
// stops.
func (c *Cloud) hang(ctx context.Context, op admin.Operation, point admin.HangPoint) error {
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
		if !happened(f.until, time.Now()) {
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
