//go:build integration

package rig

import (
	"time"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
)

// Unkind makes the cloud as difficult as a real cloud may be. It names the nodes itself when they boot. A node gets its
// provider ID one second after it registers, and has a taint until then. Lists have pages of two instances, and show
// instances for a minute after they are gone. Refusals quote the credentials. Unkind does not change stale reads and
// client tokens.
func Unkind(b *admin.Behaviour) {
	b.OwnNodeNames, b.NodeInit = true, virtual.Duration(time.Second)
	b.PageSize, b.Linger, b.QuoteCredentials = 2, virtual.Duration(time.Minute), true
}
