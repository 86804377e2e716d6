package incus

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/lxc/incus/v6/shared/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider"
)

const validSpecJSON = `{"endpoint":"https://10.0.0.1:8443","image":{"alias":"node"}}`

func TestCreateRequestHasTheFieldsOfTheSpec(t *testing.T) {
	spec, err := ParseSpec(json.RawMessage(validSpecJSON))
	require.NoError(t, err)
	post := spec.newCreateRequest()
	assert.Equal(t, "default", spec.Project)
	assert.Equal(t, api.InstanceTypeContainer, post.Type)
	assert.True(t, post.Start)
	assert.Nil(t, post.Profiles, "the project's default")
	assert.Empty(t, post.Devices)

	spec, err = ParseSpec(
		json.RawMessage(`{"endpoint":"unix:///run/incus.socket","project":"p","target":"a","type":"virtual-machine",
		"image":{"fingerprint":"ab","server":"https://images.example","protocol":"simplestreams"},"profiles":[],
		"config":{"security.nesting":"true","limits.cpu":"1"},"limits":{"cpu":"2","memory":"4GiB"},"devices":{"gpu":{"type":"gpu"}},
		"network":"mwbr0","storage":{"pool":"fast","size":"20GiB"}}`),
	)
	require.NoError(t, err)
	post = spec.newCreateRequest()
	assert.Equal(t, api.InstanceTypeVM, post.Type)
	assert.Equal(
		t,
		api.InstanceSource{
			Type:        "image",
			Fingerprint: "ab",
			Server:      "https://images.example",
			Protocol:    "simplestreams",
			Mode:        "pull",
		},
		post.Source,
	)
	assert.Equal(t, []string{}, post.Profiles)
	assert.Equal(t, api.ConfigMap{"security.nesting": "true", "limits.cpu": "2", "limits.memory": "4GiB"}, post.Config)
	assert.Equal(t, api.DevicesMap{
		"gpu": {"type": "gpu"}, "eth0": {"type": "nic", "name": "eth0", "network": "mwbr0"},
		"root": {"type": "disk", "path": "/", "pool": "fast", "size": "20GiB"},
	}, post.Devices)
}

func TestInvalidSpecsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		``:                         "providerSpec: is missing",
		`{"endpoint":"https://a"}`: "providerSpec.image: give an alias or a fingerprint",
		`{"endpoint":"https://a","image":{"alias":"a","fingerprint":"b"}}`: "providerSpec.image: give an alias or a fingerprint",
		`{"image":{"alias":"a"}}`:                                                        `providerSpec.endpoint: "" is neither https://HOST:PORT nor unix:///PATH`,
		strings.Replace(validSpecJSON, "https", "http", 1):                               "is neither https://HOST:PORT nor unix:///PATH",
		strings.Replace(validSpecJSON, "{", `{"type":"pod",`, 1):                         `providerSpec.type: "pod" is neither container nor virtual-machine`,
		strings.Replace(validSpecJSON, "{", `{"prject":"x",`, 1):                         `providerSpec: unknown field "prject"`,
		strings.Replace(validSpecJSON, "{", `{"project":7,`, 1):                          "providerSpec.project: is number, and must be string",
		strings.Replace(validSpecJSON, "{", `{"config":{"user.user-data":"x"},`, 1):      "providerSpec.config.user.user-data: is set by Millwright",
		strings.Replace(validSpecJSON, "{", `{"config":{"user.millwright-uid":"x"},`, 1): "providerSpec.config.user.millwright-uid: is set by Millwright",
		strings.Replace(validSpecJSON, "{", `{"storage":{"size":"1GiB"},`, 1):            "providerSpec.storage.pool: is required with a size",
	} {
		_, err := ParseSpec(json.RawMessage(text))
		assert.Equal(t, provider.InvalidArgument, provider.CodeOfError(err), text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestProviderIDContainsTheInstanceName(t *testing.T) {
	s := &session{spec: Spec{Project: "p"}}
	a, b := s.providerID("m", "uid-a"), s.providerID("m", "uid-b")
	assert.NotEqual(t, a, b, "two instances of one name, one after the other")
	for _, id := range []string{a, b, s.providerID("m", "")} {
		name, err := s.instanceNameFromProviderID(id)
		require.NoError(t, err)
		assert.Equal(t, "m", name)
	}
	for _, id := range []string{"", "incus:///p", "incus:///other/m", "aws:///p/m", "incus:///p/m/x/y", "incus:///p/-m"} {
		_, err := s.instanceNameFromProviderID(id)
		assert.Equal(t, provider.InvalidArgument, provider.CodeOfError(err), id)
	}
}

func TestIsValidInstanceName(t *testing.T) {
	for _, name := range []string{"m", "m-1", "1a", strings.Repeat("a", 63)} {
		assert.True(t, isValidInstanceName(name), name)
	}
	for _, name := range []string{"", "1", "-a", "a-", "a.b", "a_b", strings.Repeat("a", 64)} {
		assert.False(t, isValidInstanceName(name), name)
	}
}

func TestErrorsAreMappedToCodes(t *testing.T) {
	require.NoError(t, toProviderErrorOrNil(nil))
	for err, want := range map[error]provider.Code{
		errors.New("Reached maximum\nnumber of instances"):          provider.Internal,
		api.StatusErrorf(http.StatusForbidden, "not authorized"):    provider.PermissionDenied,
		api.StatusErrorf(http.StatusNotFound, "Instance not found"): provider.NotFound,
		api.StatusErrorf(http.StatusServiceUnavailable, "starting"): provider.Unavailable,
		api.StatusErrorf(http.StatusTeapot, "odd"):                  provider.Internal,
	} {
		got := toProviderError(err)
		assert.Equal(t, want, provider.CodeOfError(got), err)
		assert.NotContains(t, got.Error(), "\n")
	}
}
