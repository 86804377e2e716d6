//go:build integration

package rig

import (
	"time"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
)

// Unkind makes the cloud behave as clouds may: it names the nodes itself when they boot, and their provider IDs come a
// second later than their kubelets, which have a taint until then; lists come in pages and show instances that are
// gone; refusals quote the credentials. Reads and client tokens stay as they are.
func Unkind(b *admin.Behaviour) {
	b.OwnNodeNames, b.NodeInit = true, virtual.Duration(time.Second)
	b.PageSize, b.Linger, b.QuoteCredentials = 2, virtual.Duration(time.Minute), true
}
