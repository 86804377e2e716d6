//go:build integration

package rig

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Audited is one line of the API server's audit log: what one of our own identities asked.
type Audited struct {
	Verb, RequestURI string
	ObjectRef        struct{ Resource, Namespace, Name, Subresource string }
	User             struct{ Username string }

	RequestReceivedTimestamp time.Time
	ResponseStatus           struct {
		Code    int
		Message string
	}
}

// Audit returns the lines of the audit log that are wanted, in order.
func (r *Rig) Audit(t *testing.T, wanted func(Audited) bool) []Audited {
	t.Helper()
	file, err := os.Open(r.Stack.AuditLog())
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	var found []Audited
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line Audited
		if json.Unmarshal(lines.Bytes(), &line) == nil && wanted(line) { // the last line may be half written
			found = append(found, line)
		}
	}
	return found
}
