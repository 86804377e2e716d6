package orphan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/orphan"
)

func TestUnmanagedNodes(t *testing.T) {
	node := func(age time.Duration, change func(*orphan.Node)) orphan.Node {
		n := orphan.Node{Name: "n", ProviderID: "i-n", MachineName: "m", Created: timeAgo(age), HasFinalizer: true}
		if change != nil {
			change(&n)
		}
		return n
	}
	other := orphan.NodeClaimant{Name: "other", NodeName: "other", ProviderID: "i-other"}
	for _, row := range []struct {
		name  string
		node  orphan.Node
		owner orphan.NodeClaimant
		want  []string
	}{
		{"21 minutes", node(21*time.Minute, nil), other, []string{"n"}},
		{"19 minutes", node(19*time.Minute, nil), other, nil},
		{"it says so, and has our finalizer", node(time.Hour, func(n *orphan.Node) { n.NotManaged = true }), other, []string{"n"}},
		{"it says so already", node(time.Hour, func(n *orphan.Node) { n.NotManaged, n.HasFinalizer = true, false }), other, nil},
		{"one that never was ours", node(time.Hour, func(n *orphan.Node) { *n = orphan.Node{Name: "n", Created: n.Created} }), other, []string{"n"}},
		{"one that never was ours, and a machine of which nothing is known", node(time.Hour, func(n *orphan.Node) { *n = orphan.Node{Name: "n", Created: n.Created} }), orphan.NodeClaimant{Name: "other"}, []string{"n"}},
		{"a machine names it", node(time.Hour, nil), orphan.NodeClaimant{Name: "x", NodeName: "n"}, nil},
		{"it names its machine", node(time.Hour, nil), orphan.NodeClaimant{Name: "m"}, nil},
		{"a machine of the same name is about to join", node(time.Hour, nil), orphan.NodeClaimant{Name: "n"}, nil},
		{"a machine has its instance", node(time.Hour, nil), orphan.NodeClaimant{Name: "x", ProviderID: "i-n"}, nil},
		{"a machine's name is no node's name", node(time.Hour, nil), orphan.NodeClaimant{Name: "x", NodeName: "m"}, []string{"n"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, orphan.UnmanagedNodes(now, []orphan.Node{row.node}, []orphan.NodeClaimant{row.owner}))
		})
	}
	t.Run("no machine at all", func(t *testing.T) {
		assert.Empty(t, orphan.UnmanagedNodes(now, []orphan.Node{node(time.Hour, nil)}, nil))
	})
	t.Run("bounded", func(t *testing.T) {
		var nodes []orphan.Node
		for i := range 60 {
			nodes = append(nodes, orphan.Node{Name: fmt.Sprint(i), Created: timeAgo(time.Hour)})
		}
		assert.Len(t, orphan.UnmanagedNodes(now, nodes, []orphan.NodeClaimant{other}), orphan.MaxUnmanagedNodes)
	})
}
