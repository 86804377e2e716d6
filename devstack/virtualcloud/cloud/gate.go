package cloud

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/virtual"
)

// callSubject names the machine and the class that a call concerns. A Fault can be limited to a machine or a class.
type callSubject struct{ machine, class string }

// callGate decides whether a call is refused: first by rate limits, then by faults.
type callGate struct {
	buckets map[admin.Operation]*tokenBucket
	faults  []*activeFault
}

// activeFault is a Fault in effect, with its end, the number of matching calls, and its random numbers.
type activeFault struct {
	admin.Fault
	endsAt           time.Time // end of the fault; zero: the fault has no end
	matchedCallCount int       // number of matching calls so far
	random           *rand.Rand
}

func newActiveFault(f admin.Fault, now time.Time) *activeFault {
	// A test sets the seed and gets the same random numbers in each run.
	use := &activeFault{Fault: f, random: rand.New(rand.NewPCG(f.Seed, 0))}
	if f.Lifetime > 0 {
		use.endsAt = now.Add(time.Duration(f.Lifetime))
	}
	return use
}

// countAndMatchCall counts a matching call, and reports whether the fault refuses the call.
func (f *activeFault) countAndMatchCall(op admin.Operation, about callSubject) bool {
	if f.Operation != op || (f.Machine != "" && f.Machine != about.machine) || (f.Class != "" && f.Class != about.class) {
		return false
	}
	f.matchedCallCount++
	if f.EveryNthCall > 1 && f.matchedCallCount%f.EveryNthCall != 0 {
		return false
	}
	return f.Probability == 0 || f.random.Float64() < f.Probability
}

func (f *activeFault) refusal() *provider.Error {
	message := f.Message
	if message == "" {
		message = "a fault was asked for"
	}
	return &provider.Error{Code: provider.ParseCode(f.Code), Message: message, RetryAfter: time.Duration(f.RetryAfter)}
}

// matchingFault returns the first fault that applies to the call; nil if none applies.
func (g *callGate) matchingFault(op admin.Operation, about callSubject, now time.Time) *activeFault {
	g.faults = slices.DeleteFunc(g.faults, func(f *activeFault) bool { return isPast(f.endsAt, now) })
	for i, f := range g.faults {
		if !f.countAndMatchCall(op, about) {
			continue
		}
		if f.MaxFailures > 0 {
			if f.MaxFailures--; f.MaxFailures == 0 {
				g.faults = slices.Delete(g.faults, i, i+1)
			}
		}
		return f
	}
	return nil
}

// tokenBucket is the state of the token bucket of one operation.
type tokenBucket struct {
	tokens     float64
	refilledAt time.Time
}

// takeToken takes a token from the operation's bucket. If the bucket has no token, takeToken returns an error with the
// time until the next token.
func (g *callGate) takeToken(op admin.Operation, limit admin.RateLimit, now time.Time) error {
	b := g.buckets[op]
	if b == nil {
		b = &tokenBucket{tokens: float64(limit.Burst), refilledAt: now}
		if g.buckets == nil {
			g.buckets = map[admin.Operation]*tokenBucket{}
		}
		g.buckets[op] = b
	}
	b.tokens = min(float64(limit.Burst), b.tokens+now.Sub(b.refilledAt).Seconds()*limit.TokensPerSecond)
	b.refilledAt = now
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
		RetryAfter: time.Duration((1 - b.tokens) / limit.TokensPerSecond * float64(time.Second)),
	}
}

// admitCall counts a call and returns an error if a rate limit or a fault refuses the call. An admitted call waits
// while its operation hangs. If admitCall returns a fault, the call takes effect and then fails with this fault.
func (c *Cloud) admitCall(ctx context.Context, op admin.Operation, about callSubject) (*activeFault, error) {
	c.mu.Lock()
	now := time.Now()
	if c.stats.Calls == nil {
		c.stats.Calls = map[admin.Operation]int{}
	}
	c.stats.Calls[op]++
	if limit, limited := c.behaviour.RateLimits[op]; limited {
		if err := c.callGate.takeToken(op, limit, now); err != nil {
			c.mu.Unlock()
			return nil, err
		}
	}
	struck := c.callGate.matchingFault(op, about, now)
	c.mu.Unlock()
	if struck != nil && !struck.FailsAfterEffect {
		return nil, struck.refusal()
	}
	return struck, c.waitWhileHanging(ctx, op, admin.HangBeforeEffect)
}

// waitWhileHanging waits while calls of the operation hang at the point. The error means that the client has gone or
// that the cloud stops.
func (c *Cloud) waitWhileHanging(ctx context.Context, op admin.Operation, point admin.HangPoint) error {
	for {
		c.mu.Lock()
		hangs, changed := c.behaviour.HangPoints[op] == point, c.behaviourChanged
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

// AddFault adds a fault, which makes calls fail.
func (c *Cloud) AddFault(f admin.Fault) error {
	if err := validateFault(f); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.callGate.faults = append(c.callGate.faults, newActiveFault(f, time.Now()))
	return nil
}

// Faults returns the faults that are still in effect, with the rest of their lifetimes.
func (c *Cloud) Faults() []admin.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	faults := []admin.Fault{}
	for _, f := range c.callGate.faults {
		if isPast(f.endsAt, now) {
			continue
		}
		fault := f.Fault
		if !f.endsAt.IsZero() {
			fault.Lifetime = virtual.Duration(f.endsAt.Sub(now))
		}
		faults = append(faults, fault)
	}
	return faults
}

// ClearFaults removes every fault.
func (c *Cloud) ClearFaults() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.callGate.faults = nil
}

// ClearFaultsOfOperation removes the faults of one operation.
func (c *Cloud) ClearFaultsOfOperation(op admin.Operation) error {
	if err := validateOperation(op); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.callGate.faults = slices.DeleteFunc(c.callGate.faults, func(f *activeFault) bool { return f.Operation == op })
	return nil
}
