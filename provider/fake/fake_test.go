package fake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider"
	"millwright/provider/fake"
)

func testMachine(name string) provider.Machine {
	return provider.Machine{Cluster: "c", Namespace: "shop", Name: name, UID: "uid-" + name}
}

func createInstance(t *testing.T, p *fake.Provider, name string) error {
	t.Helper()
	_, err := p.CreateInstance(t.Context(), testClass("plain"), testMachine(name))
	return err
}

func TestFailuresAreReturnedInOrderUntilEndFailures(t *testing.T) {
	p := fake.New()
	p.FailCalls(provider.MethodCreateInstance, 2, provider.Errorf(provider.Unavailable, "down"))
	p.FailCalls(provider.MethodCreateInstance, 0, provider.Errorf(provider.Internal, "broken"))
	for _, want := range []provider.Code{provider.Unavailable, provider.Unavailable, provider.Internal, provider.Internal} {
		assert.Equal(t, want, provider.CodeOfError(createInstance(t, p, "m")))
	}
	p.EndFailures(provider.MethodCreateInstance)
	require.NoError(t, createInstance(t, p, "m"))
	assert.Equal(t, 5, p.CallCount(provider.MethodCreateInstance))
	assert.Equal(t, 1, p.CreatedInstanceCount())
}

func TestFailCallsAfterEffectKeepsTheEffect(t *testing.T) {
	p := fake.New()
	p.FailCallsAfterEffect(provider.MethodCreateInstance, 1, provider.Errorf(provider.Unavailable, "the answer was lost"))
	require.Error(t, createInstance(t, p, "m"))
	require.Len(t, p.Instances(), 1)
	require.NoError(t, createInstance(t, p, "m"))
	assert.Equal(t, 1, p.CreatedInstanceCount())
}

func TestCallsCanBeDelayedAndBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fake.New()
		p.DelayCalls(provider.MethodCreateInstance, 3*time.Second)
		begun := time.Now()
		require.NoError(t, createInstance(t, p, "a"))
		assert.Equal(t, 3*time.Second, time.Since(begun))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.CreateInstance(ctx, testClass("plain"), testMachine("b"))
		assert.Equal(t, provider.DeadlineExceeded, provider.CodeOfError(err))

		p.DelayCalls(provider.MethodCreateInstance, 0)
		release := p.BlockCalls(provider.MethodCreateInstance)
		done := make(chan error)
		go func() { done <- createInstance(t, p, "c") }()
		time.Sleep(time.Hour)
		assert.Empty(t, done)
		release()
		release() // a second call of release has no effect
		require.NoError(t, <-done)
		assert.Equal(t, 2, p.CreatedInstanceCount())
	})
}

func TestDeletionCanBeHeld(t *testing.T) {
	p := fake.New()
	require.NoError(t, createInstance(t, p, "m"))
	p.HoldDeletions()
	require.NoError(t, p.DeleteInstance(t.Context(), testClass("plain"), testMachine("m")))
	seen, err := p.InstanceStatus(t.Context(), testClass("plain"), testMachine("m"))
	require.NoError(t, err)
	assert.Equal(t, provider.Terminating, seen.State)
	assert.Equal(t, provider.Aborted, provider.CodeOfError(createInstance(t, p, "m")))
	p.FinishDeletions()
	assert.Empty(t, p.Instances())
}

func TestRemovedInstanceHasNoUserData(t *testing.T) {
	p := fake.New()
	with := testClass("plain")
	with.Secret["userData"] = []byte("hello")
	_, err := p.CreateInstance(t.Context(), with, testMachine("m"))
	require.NoError(t, err)
	assert.Equal(t, "hello", string(p.UserData("uid-m")))
	assert.True(t, p.RemoveInstances("uid-m"))
	assert.False(t, p.RemoveInstances("uid-m"))
	assert.Nil(t, p.UserData("uid-m"))
}
