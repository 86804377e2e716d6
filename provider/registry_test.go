package provider_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider"
)

// stubProvider is a Provider whose methods are never called: the tests of Registry do not call them.
type stubProvider struct{ provider.Provider }

func TestRegistryFindsRegisteredProviders(t *testing.T) {
	var r provider.Registry
	require.NoError(t, r.Register("virtual", &stubProvider{}))
	require.NoError(t, r.Register("aws", &stubProvider{}))
	require.ErrorContains(t, r.Register("aws", &stubProvider{}), "the name is taken")
	require.ErrorContains(t, r.Register("none", nil), "it is nil")
	require.ErrorContains(t, r.Register("", &stubProvider{}), "is empty")
	assert.Equal(t, []string{"aws", "virtual"}, r.Names())

	found, err := r.Lookup("virtual")
	require.NoError(t, err)
	assert.NotNil(t, found)
}

func TestLookupOfAnUnknownProviderListsTheKnownProviders(t *testing.T) {
	var r provider.Registry
	_, err := r.Lookup("gcp")
	assert.EqualError(t, err, `provider "gcp" is not known to this worker; it has: none (InvalidArgument)`)
	require.NoError(t, r.Register("virtual", &stubProvider{}))
	_, err = r.Lookup("")
	assert.Equal(t, provider.InvalidArgument, provider.CodeOfError(err))
	assert.EqualError(t, err, `the machine class names no provider; this worker has: virtual (InvalidArgument)`)
}

func TestTaskQueue(t *testing.T) {
	assert.Equal(t, "provider-virtual", provider.TaskQueue("virtual"))
}

func TestValidateName(t *testing.T) {
	for _, good := range []string{"a", "virtual", "aws-2", "0", strings.Repeat("x", 63)} {
		assert.NoError(t, provider.ValidateName(good), good)
	}
	for _, bad := range []string{"", "-a", "a-", "A", "a_b", "a.b", "a b", "ä", "a\n", strings.Repeat("x", 64)} {
		assert.Error(t, provider.ValidateName(bad), bad)
	}
}

func TestRedact(t *testing.T) {
	secret := provider.Secret{
		"token": []byte("abcdef-123456\n"), "longer": []byte("abcdef-123456-and-more"), "region": []byte("eu"), "empty": nil,
	}
	assert.Equal(
		t,
		`token "[redacted]" of eu, or [redacted]`,
		secret.Redact(`token "abcdef-123456" of eu, or abcdef-123456-and-more`),
	)
	assert.Equal(t, "as it was", provider.Secret(nil).Redact("as it was"))
}
