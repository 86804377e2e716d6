package shard_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/observe/shard"
)

func newRecord(data map[string]string) *corev1.ConfigMap { return &corev1.ConfigMap{Data: data} }

func TestNewNamespacesGetTheEmptiestShard(t *testing.T) {
	empty, err := shard.ParseTable(nil)
	require.NoError(t, err)
	data := empty.AssignNamespaces(3, []string{"d", "c", "b", "a", "a"})
	assert.Equal(t, map[string]string{"installation.shards": "3", "a": "0", "b": "1", "c": "2", "d": "0"}, data)

	now, err := shard.ParseTable(newRecord(data))
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "d"}, now.NamespacesOfShard(0))
	assert.Equal(t, data, now.AssignNamespaces(3, []string{"a", "b", "c", "d"}))
	data = now.AssignNamespaces(3, []string{"a", "b", "d", "e"})
	assert.Equal(
		t,
		map[string]string{"installation.shards": "3", "a": "0", "b": "1", "d": "0", "e": "2"},
		data,
		"c has no object any more",
	)
}

func TestNamespacesKeepTheirShardWhenShardsAreAdded(t *testing.T) {
	now, err := shard.ParseTable(newRecord(map[string]string{"installation.shards": "2", "a": "0", "b": "1"}))
	require.NoError(t, err)
	data := now.AssignNamespaces(4, []string{"a", "b", "c"})
	assert.Equal(t, map[string]string{"installation.shards": "4", "a": "0", "b": "1", "c": "2"}, data)
	data = now.AssignNamespaces(1, []string{"a", "b"})
	assert.Equal(t, "2", data["installation.shards"], "the number never decreases")
}

// A record with one shard was written while the workers served one shard.
func TestASecondShardGetsNamespacesOfTheFirstShard(t *testing.T) {
	now, err := shard.ParseTable(newRecord(map[string]string{"installation.shards": "1", "a": "0", "b": "0"}))
	require.NoError(t, err)
	assert.Equal(
		t,
		map[string]string{"installation.shards": "2", "a": "0", "b": "1"},
		now.AssignNamespaces(2, []string{"a", "b"}),
	)
	assert.Equal(
		t,
		map[string]string{"installation.shards": "1", "a": "0", "b": "0"},
		now.AssignNamespaces(1, []string{"a", "b"}),
	)
}

func TestAnInvalidEntryDoesNotAffectOtherNamespaces(t *testing.T) {
	for _, bad := range []string{"x", "-1", "2", "64", ""} {
		table, err := shard.ParseTable(newRecord(map[string]string{"installation.shards": "2", "a": bad, "b": "1"}))
		require.Error(t, err, bad)
		assert.EqualError(t, err, "ConfigMap millwright-shards has wrong values, which have no effect: "+
			fmt.Sprintf("namespace a: %q is no number from 0 to 1", bad))
		_, recorded := table.ShardOfNamespace("a")
		assert.False(t, recorded)
		number, recorded := table.ShardOfNamespace("b")
		assert.True(t, recorded)
		assert.Equal(t, 1, number)
	}
	_, err := shard.ParseTable(newRecord(map[string]string{"installation.shards": "0"}))
	require.ErrorContains(t, err, fmt.Sprintf("from 1 to %d", shard.MaxCount))
}

func TestAnInstallationWithOneShardServesEachNamespace(t *testing.T) {
	var none *shard.Map
	number, recorded := none.ShardOfNamespace("shop")
	assert.True(t, recorded)
	assert.Zero(t, number)
	assert.True(t, shard.NewClaims(nil).Serves("shop"))
}
