package virtual_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/driver"
	"millwright/provider/virtual"
)

func TestMissingOrRefusedTokenIsUnauthenticated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		p := newWorkerProvider(c)
		none := testClass("pool", nil)
		none.Secret = provider.Secret{"userData": []byte("x"), "token": []byte(" \n")}
		_, err := p.CreateInstance(t.Context(), none, untriedMachine())
		require.Equal(t, provider.Unauthenticated, provider.CodeOfError(err))
		assert.ErrorContains(t, err, `the secret of machine class shop/pool has no key "token"`)
		assert.Empty(t, c.Stats().Calls, "nothing is asked without credentials")

		c.changeBehaviour(t, func(b *admin.Behaviour) { b.AcceptedTokens = []string{"the-good-token"} })
		wrong := testClass("pool", nil)
		_, err = p.CreateInstance(t.Context(), wrong, untriedMachine())
		require.Equal(t, provider.Unauthenticated, provider.CodeOfError(err))
		assert.NotContains(t, err.Error(), canarySecret)

		wrong.Secret["token"] = []byte("the-good-token\n")
		_, err = p.CreateInstance(t.Context(), wrong, untriedMachine())
		require.NoError(t, err)
	})
}

func TestUserDataReachesTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		_, err := newWorkerProvider(c).CreateInstance(t.Context(), testClass("pool", nil), untriedMachine())
		require.NoError(t, err)
		data, err := c.UserData("i-1")
		require.NoError(t, err)
		assert.Equal(t, "#cloud-config "+canarySecret, string(data))
	})
}

func TestDeleteNeedsNoValidClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		p := newWorkerProvider(c)
		made, err := p.CreateInstance(t.Context(), testClass("pool", nil), untriedMachine())
		require.NoError(t, err)
		broken := testClass("pool", nil)
		broken.Spec = []byte(`{"no": "such field"}`)
		m := testMachine()
		m.ProviderID = made.ProviderID
		require.NoError(t, p.DeleteInstance(t.Context(), broken, m))
		assert.Zero(t, c.Stats().LiveInstances)
	})
}

// A creation ran twice and made two instances; the Machine has recorded the provider ID of the second instance.
func TestDeleteDeletesEveryInstanceOfTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.changeBehaviour(t, func(b *admin.Behaviour) { b.HonorClientTokens = false })
		careless := newWorkerProvider(c, driver.WithoutSearch())
		var made provider.Instance
		for range 2 {
			var err error
			made, err = careless.CreateInstance(t.Context(), testClass("pool", nil), untriedMachine())
			require.NoError(t, err)
		}
		require.Equal(t, 2, c.Stats().LiveInstances)
		m := testMachine()
		m.ProviderID = made.ProviderID
		require.NoError(t, newWorkerProvider(c).DeleteInstance(t.Context(), testClass("pool", nil), m))
		assert.Zero(t, c.Stats().LiveInstances)
	})
}

func TestForeignProviderIDIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWorkerProvider(startCloud(t))
		for _, id := range []string{"aws:///eu/i-1", "virtual:///i-1", "virtual:///eu/x", "i-1"} {
			m := testMachine()
			m.ProviderID = id
			assert.Equal(
				t,
				provider.InvalidArgument,
				provider.CodeOfError(p.DeleteInstance(t.Context(), testClass("pool", nil), m)),
				id,
			)
		}
	})
}

// A Machine that was restored from a backup has a new UID, but its instance still has the former UID.
func TestRestoredMachineFindsItsInstanceByProviderID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWorkerProvider(startCloud(t))
		made, err := p.CreateInstance(t.Context(), testClass("pool", nil), untriedMachine())
		require.NoError(t, err)
		restored := testMachine()
		restored.UID, restored.ProviderID = "another-uid", made.ProviderID
		seen, err := p.InstanceStatus(t.Context(), testClass("pool", nil), restored)
		require.NoError(t, err)
		assert.Equal(t, made.ProviderID, seen.ProviderID)
		restored.FormerUID = testMachine().UID // as if the caller had proven that the instance belongs to the machine
		adopted, err := p.CreateInstance(t.Context(), testClass("pool", nil), restored)
		require.NoError(t, err)
		assert.Equal(t, made.ProviderID, adopted.ProviderID)
		require.NoError(t, p.DeleteInstance(t.Context(), testClass("pool", nil), restored))
	})
}

func TestStatusOfAYoungInstanceWaitsForTheEndOfStaleReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.changeBehaviour(t, func(b *admin.Behaviour) { b.ReadStaleness = virtual.Duration(time.Second) })
		p := newWorkerProvider(c)
		made, err := p.CreateInstance(t.Context(), testClass("pool", nil), untriedMachine())
		require.NoError(t, err)
		m := testMachine()
		_, err = p.InstanceStatus(t.Context(), testClass("pool", nil), m)
		require.Equal(t, provider.NotFound, provider.CodeOfError(err), "what a stale read shows")
		m.ProviderID, m.LastKnownState = made.ProviderID, made.LastKnownState
		_, err = p.InstanceStatus(t.Context(), testClass("pool", nil), m)
		require.NoError(t, err)

		require.NoError(t, c.MakeInstanceVanish(admin.VanishRequest{Machine: "m"}))
		require.Eventually(t, func() bool {
			_, err := p.InstanceStatus(t.Context(), testClass("pool", nil), m)
			return provider.CodeOfError(err) == provider.NotFound
		}, 5*time.Second, 5*time.Millisecond)
	})
}

func TestTerminatingInstanceIsNotAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		p := newWorkerProvider(c)
		lingering := testClass("pool", map[string]any{"deleteLatency": "1h"})
		_, err := p.CreateInstance(t.Context(), lingering, untriedMachine())
		require.NoError(t, err)
		require.NoError(t, p.DeleteInstance(t.Context(), lingering, testMachine()))
		_, err = p.CreateInstance(t.Context(), lingering, testMachine())
		assert.Equal(t, provider.Aborted, provider.CodeOfError(err))
		seen, err := p.InstanceStatus(t.Context(), lingering, testMachine())
		require.NoError(t, err)
		assert.Equal(t, provider.Terminating, seen.State)

		c.changeBehaviour(t, func(b *admin.Behaviour) { b.ReadStaleness = virtual.Duration(time.Hour) })
		_, err = p.CreateInstance(t.Context(), lingering, testMachine())
		assert.Equal(t, provider.Aborted, provider.CodeOfError(err), "also when only the client token finds it")
	})
}

func TestUnreachableCloudIsUnavailable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := virtual.New(server.URL).InstanceStatus(t.Context(), testClass("pool", nil), testMachine())
	assert.Equal(t, provider.Unavailable, provider.CodeOfError(err))
}

// A proxy between the provider and the cloud may answer with an HTML page instead of the cloud's JSON.
func TestHTTPStatusOfAProxyIsMappedToACode(t *testing.T) {
	for status, want := range map[int]provider.Code{
		http.StatusNotFound:            provider.Unknown,
		http.StatusUnauthorized:        provider.Unauthenticated,
		http.StatusForbidden:           provider.PermissionDenied,
		http.StatusBadRequest:          provider.InvalidArgument,
		http.StatusTooManyRequests:     provider.ResourceExhausted,
		http.StatusBadGateway:          provider.Unavailable,
		http.StatusServiceUnavailable:  provider.Unavailable,
		http.StatusGatewayTimeout:      provider.DeadlineExceeded,
		http.StatusNotImplemented:      provider.Unimplemented,
		http.StatusInternalServerError: provider.Unknown,
		http.StatusFound:               provider.Unknown,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte("<html>" + canarySecret + "</html>"))
		}))
		_, err := virtual.New(server.URL).InstanceStatus(t.Context(), testClass("pool", nil), testMachine())
		assert.Equal(t, want, provider.CodeOfError(err), status)
		assert.NotContains(t, err.Error(), canarySecret)
		server.Close()
	}
}

func TestTruncatedAnswerIsAnUnavailableError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"now": "2026`))
	}))
	defer server.Close()
	_, err := virtual.New(server.URL).InstanceStatus(t.Context(), testClass("pool", nil), testMachine())
	assert.Equal(t, provider.Unavailable, provider.CodeOfError(err))
}
