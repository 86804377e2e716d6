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

func TestCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		p := process(c)
		none := class("pool", nil)
		none.Secret = provider.Secret{"userData": []byte("x"), "token": []byte(" \n")}
		_, err := p.CreateInstance(t.Context(), none, untried())
		require.Equal(t, provider.Unauthenticated, provider.CodeOf(err))
		assert.ErrorContains(t, err, `the secret of machine class shop/pool has no key "token"`)
		assert.Empty(t, c.Stats().Calls, "nothing is asked without credentials")

		c.change(t, func(b *admin.Behaviour) { b.Tokens = []string{"the-good-token"} })
		wrong := class("pool", nil)
		_, err = p.CreateInstance(t.Context(), wrong, untried())
		require.Equal(t, provider.Unauthenticated, provider.CodeOf(err))
		assert.NotContains(t, err.Error(), canary)

		wrong.Secret["token"] = []byte("the-good-token\n")
		_, err = p.CreateInstance(t.Context(), wrong, untried())
		require.NoError(t, err)
	})
}

func TestUserDataReachesTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		_, err := process(c).CreateInstance(t.Context(), class("pool", nil), untried())
		require.NoError(t, err)
		data, err := c.UserData("i-1")
		require.NoError(t, err)
		assert.Equal(t, "#cloud-config "+canary, string(data))
	})
}

func TestDeleteNeedsNoValidClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		p := process(c)
		made, err := p.CreateInstance(t.Context(), class("pool", nil), untried())
		require.NoError(t, err)
		broken := class("pool", nil)
		broken.Spec = []byte(`{"no": "such field"}`)
		m := machine()
		m.ProviderID = made.ProviderID
		require.NoError(t, p.DeleteInstance(t.Context(), broken, m))
		assert.Zero(t, c.Stats().Live)
	})
}

// A creation that ran twice: the machine has one of its instances on record.
func TestDeleteTakesEveryInstanceOfTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.change(t, func(b *admin.Behaviour) { b.ClientTokens = false })
		careless := process(c, driver.WithoutSearch())
		var made provider.Instance
		for range 2 {
			var err error
			made, err = careless.CreateInstance(t.Context(), class("pool", nil), untried())
			require.NoError(t, err)
		}
		require.Equal(t, 2, c.Stats().Live)
		m := machine()
		m.ProviderID = made.ProviderID
		require.NoError(t, process(c).DeleteInstance(t.Context(), class("pool", nil), m))
		assert.Zero(t, c.Stats().Live)
	})
}

func TestForeignProviderIDIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := process(startCloud(t))
		for _, id := range []string{"aws:///eu/i-1", "virtual:///i-1", "virtual:///eu/x", "i-1"} {
			m := machine()
			m.ProviderID = id
			assert.Equal(t, provider.InvalidArgument, provider.CodeOf(p.DeleteInstance(t.Context(), class("pool", nil), m)), id)
		}
	})
}

// A Machine that was restored from a backup has a new UID and its old instance.
func TestRestoredMachineFindsItsInstanceByProviderID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := process(startCloud(t))
		made, err := p.CreateInstance(t.Context(), class("pool", nil), untried())
		require.NoError(t, err)
		restored := machine()
		restored.UID, restored.ProviderID = "another-uid", made.ProviderID
		seen, err := p.InstanceStatus(t.Context(), class("pool", nil), restored)
		require.NoError(t, err)
		assert.Equal(t, made.ProviderID, seen.ProviderID)
		restored.FormerUID = machine().UID // proven by the caller
		adopted, err := p.CreateInstance(t.Context(), class("pool", nil), restored)
		require.NoError(t, err)
		assert.Equal(t, made.ProviderID, adopted.ProviderID)
		require.NoError(t, p.DeleteInstance(t.Context(), class("pool", nil), restored))
	})
}

func TestStatusOfAYoungInstanceOutwaitsStaleReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		c.change(t, func(b *admin.Behaviour) { b.Staleness = virtual.Duration(time.Second) })
		p := process(c)
		made, err := p.CreateInstance(t.Context(), class("pool", nil), untried())
		require.NoError(t, err)
		m := machine()
		_, err = p.InstanceStatus(t.Context(), class("pool", nil), m)
		require.Equal(t, provider.NotFound, provider.CodeOf(err), "what a stale read shows")
		m.ProviderID, m.LastKnownState = made.ProviderID, made.LastKnownState
		_, err = p.InstanceStatus(t.Context(), class("pool", nil), m)
		require.NoError(t, err)

		require.NoError(t, c.Vanish(admin.Vanish{Machine: "m"}))
		require.Eventually(t, func() bool {
			_, err := p.InstanceStatus(t.Context(), class("pool", nil), m)
			return provider.CodeOf(err) == provider.NotFound
		}, 5*time.Second, 5*time.Millisecond)
	})
}

func TestTerminatingInstanceIsNotAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCloud(t)
		p := process(c)
		lingering := class("pool", map[string]any{"deleteLatency": "1h"})
		_, err := p.CreateInstance(t.Context(), lingering, untried())
		require.NoError(t, err)
		require.NoError(t, p.DeleteInstance(t.Context(), lingering, machine()))
		_, err = p.CreateInstance(t.Context(), lingering, machine())
		assert.Equal(t, provider.Aborted, provider.CodeOf(err))
		seen, err := p.InstanceStatus(t.Context(), lingering, machine())
		require.NoError(t, err)
		assert.Equal(t, provider.Terminating, seen.State)

		c.change(t, func(b *admin.Behaviour) { b.Staleness = virtual.Duration(time.Hour) })
		_, err = p.CreateInstance(t.Context(), lingering, machine())
		assert.Equal(t, provider.Aborted, provider.CodeOf(err), "also when only the client token finds it")
	})
}

func TestUnreachableCloudIsUnavailable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := virtual.New(server.URL).InstanceStatus(t.Context(), class("pool", nil), machine())
	assert.Equal(t, provider.Unavailable, provider.CodeOf(err))
}

// A proxy in front of the cloud answers with its own texts.
func TestAnswersThatAreNotTheClouds(t *testing.T) {
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
			_, _ = w.Write([]byte("<html>" + canary + "</html>"))
		}))
		_, err := virtual.New(server.URL).InstanceStatus(t.Context(), class("pool", nil), machine())
		assert.Equal(t, want, provider.CodeOf(err), status)
		assert.NotContains(t, err.Error(), canary)
		server.Close()
	}
}

func TestCutOffAnswerIsUnavailable(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"now": "2026`))
	}))
	defer server.Close()
	_, err := virtual.New(server.URL).InstanceStatus(t.Context(), class("pool", nil), machine())
	assert.Equal(t, provider.Unavailable, provider.CodeOf(err))
}
