package cloud

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/virtual"
)

// admitCreateCalls admits a number of create calls and returns the code of each call.
func admitCreateCalls(t *testing.T, c *Cloud, calls int, about callSubject) []provider.Code {
	t.Helper()
	got := []provider.Code{}
	for range calls {
		_, err := c.admitCall(t.Context(), admin.OperationCreate, about)
		got = append(got, provider.CodeOfError(err))
	}
	return got
}

func TestFaultsFailMatchingCalls(t *testing.T) {
	const bad = provider.Internal
	for name, row := range map[string]struct {
		fault admin.Fault
		about callSubject
		want  []provider.Code
	}{
		"for ever":         {admin.Fault{}, callSubject{}, []provider.Code{bad, bad, bad, bad}},
		"twice":            {admin.Fault{MaxFailures: 2}, callSubject{}, []provider.Code{bad, bad, 0, 0}},
		"every other":      {admin.Fault{EveryNthCall: 2}, callSubject{}, []provider.Code{0, bad, 0, bad}},
		"once of every 2":  {admin.Fault{EveryNthCall: 2, MaxFailures: 1}, callSubject{}, []provider.Code{0, bad, 0, 0}},
		"by dice":          {admin.Fault{Probability: 0.5, Seed: 3}, callSubject{}, nil},
		"another machine":  {admin.Fault{Machine: "b"}, callSubject{machine: "a"}, []provider.Code{0, 0}},
		"this machine":     {admin.Fault{Machine: "a"}, callSubject{machine: "a"}, []provider.Code{bad, bad}},
		"another class":    {admin.Fault{Class: "x/y"}, callSubject{class: "x/z"}, []provider.Code{0}},
		"another call":     {admin.Fault{Operation: admin.OperationDelete}, callSubject{}, []provider.Code{0}},
		"after the effect": {admin.Fault{FailsAfterEffect: true}, callSubject{}, []provider.Code{0}},
	} {
		t.Run(name, func(t *testing.T) {
			runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
				f := row.fault
				f.Code = bad.String()
				if f.Operation == "" {
					f.Operation = admin.OperationCreate
				}
				require.NoError(t, c.AddFault(f))
				if row.want == nil {
					first := admitCreateCalls(t, c, 20, row.about)
					assert.Contains(t, first, bad)
					assert.Contains(t, first, provider.OK)
					c.ClearFaults()
					require.NoError(t, c.AddFault(f))
					assert.Equal(t, first, admitCreateCalls(t, c, 20, row.about), "the seed decides")
					return
				}
				assert.Equal(t, row.want, admitCreateCalls(t, c, len(row.want), row.about))
			})
		})
	}
}

func TestFaultEndsAfterItsLifetime(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		require.NoError(t, c.AddFault(admin.Fault{
			Operation: admin.OperationCreate, Code: "ResourceExhausted", Lifetime: virtual.Duration(2 * time.Minute),
		}))
		time.Sleep(2*time.Minute - time.Nanosecond)
		assert.Equal(t, virtual.Duration(time.Nanosecond), c.Faults()[0].Lifetime, "the rest of it")
		assert.Equal(t, []provider.Code{provider.ResourceExhausted}, admitCreateCalls(t, c, 1, callSubject{}))
		assert.Len(t, c.Faults(), 1)
		time.Sleep(time.Nanosecond)
		assert.Empty(t, c.Faults())
		assert.Equal(t, []provider.Code{provider.OK}, admitCreateCalls(t, c, 1, callSubject{}))
	})
}

func TestFaultsOfOneOperationEnd(t *testing.T) {
	_, back, _ := serveCloud(t)
	for _, op := range []admin.Operation{admin.OperationCreate, admin.OperationDelete, admin.OperationCreate} {
		require.NoError(t, back.AddFault(t.Context(), admin.Fault{Operation: op, Code: "Internal"}))
	}
	require.ErrorContains(t, back.ClearFaultsOfOperation(t.Context(), "explode"), `operation: "explode"`)
	require.NoError(t, back.ClearFaultsOfOperation(t.Context(), admin.OperationCreate))
	left, err := back.Faults(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []admin.Fault{{Operation: admin.OperationDelete, Code: "Internal"}}, left)
}

func TestRateLimitReturnsRetryAfter(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		editBehaviour(t, c, func(b *admin.Behaviour) {
			b.RateLimits = map[admin.Operation]admin.RateLimit{
				admin.OperationCreate: {TokensPerSecond: 2, Burst: 3, Code: "ResourceExhausted"},
			}
		})
		assert.Equal(t, []provider.Code{0, 0, 0, provider.ResourceExhausted}, admitCreateCalls(t, c, 4, callSubject{}))
		_, err := c.admitCall(t.Context(), admin.OperationCreate, callSubject{})
		refusal, ok := errors.AsType[*provider.Error](err)
		require.True(t, ok)
		assert.Equal(t, 500*time.Millisecond, refusal.RetryAfter)
		_, err = c.admitCall(t.Context(), admin.OperationDelete, callSubject{})
		require.NoError(t, err, "other calls are not limited")
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, []provider.Code{0, provider.ResourceExhausted}, admitCreateCalls(t, c, 2, callSubject{}))
	})
}

func TestHangEndsOnReleaseOrClientDisconnect(t *testing.T) {
	runInSynctestBubble(t, func(t *testing.T, c *Cloud) {
		editBehaviour(t, c, func(b *admin.Behaviour) {
			b.HangPoints = map[admin.Operation]admin.HangPoint{admin.OperationCreate: admin.HangBeforeEffect}
		})
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.admitCall(ctx, admin.OperationCreate, callSubject{})
		assert.Equal(t, provider.Canceled, provider.CodeOfError(err))
		assert.Equal(t, time.Minute, time.Since(begun))

		released := make(chan error)
		go func() {
			_, err := c.admitCall(t.Context(), admin.OperationCreate, callSubject{})
			released <- err
		}()
		synctest.Wait()
		editBehaviour(t, c, func(b *admin.Behaviour) { b.ReadStaleness = 1 }) // Hangs is unchanged, so the call still hangs
		synctest.Wait()
		assert.Empty(t, released)
		editBehaviour(t, c, func(b *admin.Behaviour) { b.HangPoints = nil })
		assert.NoError(t, <-released)
	})
}

func TestInvalidFaultsAndBehavioursAreRefused(t *testing.T) {
	c := openCloud(t, t.TempDir(), nil)
	defer crashCloud(t, c)
	for want, f := range map[string]admin.Fault{
		`operation: "explode"`:     {Operation: "explode", Code: "Internal"},
		`code: "Bad" is no code`:   {Operation: admin.OperationCreate, Code: "Bad"},
		`must not be negative`:     {Operation: admin.OperationCreate, Code: "Internal", MaxFailures: -1},
		`probability: 2 is not`:    {Operation: admin.OperationCreate, Code: "Internal", Probability: 2},
		`operation: "" is none of`: {Code: "Internal"},
	} {
		assert.ErrorContains(t, c.AddFault(f), want)
	}
	for want, change := range map[string]func(*admin.Behaviour){
		`perSecond must be above 0`: func(b *admin.Behaviour) {
			b.RateLimits = map[admin.Operation]admin.RateLimit{admin.OperationList: {Burst: 1}}
		},
		`"x" is no code`: func(b *admin.Behaviour) {
			b.RateLimits = map[admin.Operation]admin.RateLimit{admin.OperationList: {TokensPerSecond: 1, Burst: 1, Code: "x"}}
		},
		`hangs.list: "middle"`: func(b *admin.Behaviour) {
			b.HangPoints = map[admin.Operation]admin.HangPoint{admin.OperationList: "middle"}
		},
		`operation: "nap"`: func(b *admin.Behaviour) {
			b.HangPoints = map[admin.Operation]admin.HangPoint{"nap": admin.HangAfterEffect}
		},
	} {
		b := admin.DefaultBehaviour()
		change(&b)
		assert.ErrorContains(t, c.SetBehaviour(b), want)
	}
	assert.Equal(t, admin.DefaultBehaviour(), c.Behaviour())
}
