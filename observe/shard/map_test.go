package shard_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/observe/shard"
)

// A mistake of a person in the record, or its deletion, moves no namespace of a process that runs.
func TestAnInvalidRecordMovesNoNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		configMap := newRecord(map[string]string{"installation.shards": "3", "a": "1", "b": "2"})
		configMap.Namespace, configMap.Name = "mw", shard.RecordName
		client := kubefake.NewClientset(configMap)
		configMaps := client.CoreV1().ConfigMaps("mw")
		reported := ""
		shards := shard.NewMap(client, "mw", func(err error) { reported = err.Error() })
		require.NoError(t, shards.Start(ctx))
		shardsOf := func(namespaces ...string) (numbers []int) {
			for _, namespace := range namespaces {
				number, recorded := shards.ShardOfNamespace(namespace)
				require.True(t, recorded, namespace)
				numbers = append(numbers, number)
			}
			return numbers
		}
		write := func(data map[string]string) {
			reported = ""
			configMap.Data = data
			_, err := configMaps.Update(ctx, configMap, metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		for _, wrong := range []string{"x", "", "3", "-1"} {
			write(map[string]string{"installation.shards": "3", "a": wrong, "b": "2"})
			assert.Equal(t, []int{1, 2}, shardsOf("a", "b"), "%q", wrong)
			assert.Contains(t, reported, "namespace a:")
			assert.NotContains(t, reported, "namespace b:")
		}
		write(map[string]string{"installation.shards": "many", "a": "0", "b": "2"})
		assert.Equal(t, []int{0, 2}, shardsOf("a", "b"))
		assert.Equal(t, 3, shards.Table().Count)
		assert.Contains(t, reported, "installation.shards")
		write(map[string]string{"a": "1"})
		assert.Equal(t, []int{1, 2}, shardsOf("a", "b"), "without the number of shards the record is not complete")
		assert.Contains(t, reported, "installation.shards is missing")

		write(map[string]string{"installation.shards": "3", "a": "1", "b": "2"})
		assert.Empty(t, reported)
		require.NoError(t, configMaps.Delete(ctx, shard.RecordName, metav1.DeleteOptions{}))
		synctest.Wait()
		assert.Equal(t, []int{1, 2}, shardsOf("a", "b"))
		assert.Contains(t, reported, "does not exist any more")
		assert.Nil(t, shards.Record())

		_, err := configMaps.Create(ctx, configMap, metav1.CreateOptions{})
		require.NoError(t, err)
		reported = ""
		write(map[string]string{"installation.shards": "3", "b": "0"})
		assert.Equal(t, []int{0}, shardsOf("b"))
		_, recorded := shards.ShardOfNamespace("a")
		assert.False(t, recorded, "the bridge removes namespaces without objects")
		assert.Empty(t, reported)
	})
}
