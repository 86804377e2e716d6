package virtual_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider"
	"millwright/provider/virtual"
)

func TestParseSpec(t *testing.T) {
	spec, err := virtual.ParseSpec(json.RawMessage(`{
		"region": "eu", "zone": "eu-1", "instanceType": "large", "image": "v1", "capacity": {"cpu": 8, "memory": "32Gi"},
		"createLatency": "3s", "bootLatency": "0s", "initialize": true, "neverBoots": false, "quota": 5}`))
	require.NoError(t, err)
	assert.Equal(t, virtual.Capacity{"cpu": "8", "memory": "32Gi"}, spec.Capacity)
	assert.Equal(t, virtual.Duration(3*time.Second), *spec.CreateLatency)
	assert.Zero(t, *spec.BootLatency)
	assert.Nil(t, spec.DeleteLatency, "left out is not zero")
	assert.Equal(t, 5, *spec.Quota)
	assert.True(t, spec.NeedsInitialization)
}

// The table in examples/README.md must list exactly the fields of a providerSpec.
func TestReadmeListsAllFieldsOfASpec(t *testing.T) {
	page, err := os.ReadFile("../../examples/README.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "| field of `providerSpec` |")
	require.True(t, found)
	var named []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		named = append(named, row[1])
	}
	slices.Sort(named)
	_, err = virtual.ParseSpec(json.RawMessage(`{"nosuch": 1}`))
	require.ErrorContains(t, err, "known are "+strings.Join(named, ", "))
}

func TestParseSpecErrorContainsTheFieldName(t *testing.T) {
	const rest = `"region": "eu", "zone": "eu-1", "instanceType": "small"`
	for raw, want := range map[string]string{
		``:                                     `providerSpec.region: is required`,
		`null`:                                 `providerSpec.region: is required`,
		`[]`:                                   `providerSpec: is not a JSON object`,
		`{"region": "eu"}`:                     `providerSpec.zone: is required`,
		`{"region": "eu", "zone": "eu-1"}`:     `providerSpec.instanceType: is required`,
		`{"region": "e/u", "zone": "z"}`:       `providerSpec.instanceType: is required`,
		`{` + rest + `, "machineType": "x"}`:   `providerSpec.machineType: unknown field; known are bootLatency, capacity`,
		`{` + rest + `, "Quota": 1}`:           `providerSpec.Quota: unknown field`,
		`{` + rest + `, "bootLatency": "3 s"}`: `providerSpec.bootLatency: "3 s" is not a Go duration such as "1m30s"`,
		`{` + rest + `, "bootLatency": 3}`:     `providerSpec.bootLatency: a number is not allowed here`,
		`{` + rest + `, "bootLatency": "-3s"}`: `providerSpec.bootLatency: -3s is negative`,
		`{` + rest + `, "quota": -1}`:          `providerSpec.quota: -1 is negative`,
		`{` + rest + `, "quota": "many"}`:      `providerSpec.quota: a string is not allowed here`,
		`{` + rest + `, "capacity": 3}`:        `providerSpec.capacity: a number is not allowed here`,
	} {
		_, err := virtual.ParseSpec(json.RawMessage(raw))
		assert.Equal(t, provider.InvalidArgument, provider.CodeOfError(err), raw)
		assert.ErrorContains(t, err, want)
	}
}

func TestCapacityIsCheckedByTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := newWorkerProvider(
			startCloud(t),
		).CreateInstance(
			t.Context(),
			testClass("pool", map[string]any{"capacity": map[string]any{"cpu": "many"}}),
			untriedMachine(),
		)
		require.Equal(t, provider.InvalidArgument, provider.CodeOfError(err))
		assert.ErrorContains(t, err, `capacity.cpu: "many" is not a quantity`)
	})
}

func TestEveryCodeHasAnHTTPErrorStatus(t *testing.T) {
	for _, code := range provider.Codes() {
		assert.GreaterOrEqual(t, virtual.HTTPStatus(code), 400, code)
	}
}
