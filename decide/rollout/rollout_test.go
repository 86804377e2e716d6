package rollout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/rollout"
)

func TestDecide(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	current := rollout.Set{Name: "d-new", UID: "u1", Version: "7", Replicas: 3, Current: true, Created: at(2)}
	other := rollout.Set{Name: "d-old", UID: "u2", Version: "8", Replicas: 3, Created: at(1)}
	going := rollout.Set{Name: "d-going", UID: "u3", Deleting: true, Created: at(0)}
	for _, row := range []struct {
		name string
		in   rollout.Observed
		want rollout.Decision
	}{
		{"I4: no set yet", rollout.Observed{}, rollout.Decision{Create: true, Why: "create a set of 0 machines: there is none"}},
		{
			"a set that is going is none",
			rollout.Observed{Replicas: 2, Sets: []rollout.Set{going}},
			rollout.Decision{Create: true, Why: "create a set of 2 machines: there is none"},
		},
		{"right size", rollout.Observed{Replicas: 3, Sets: []rollout.Set{current}}, rollout.Decision{Why: "set d-new has the wanted size 3"}},
		{
			"grow",
			rollout.Observed{Replicas: 5, Sets: []rollout.Set{current}},
			rollout.Decision{Resize: []rollout.Resize{{Name: "d-new", UID: "u1", Version: "7", From: 3, To: 5}}, Why: "resize set d-new 3→5"},
		},
		{
			"the template changed",
			rollout.Observed{Replicas: 3, Sets: []rollout.Set{other}},
			rollout.Decision{Pending: true, Why: "set d-old has the wanted size 3; its template is not the deployment's any more"},
		},
		{
			"the template changed, the size still follows",
			rollout.Observed{Replicas: 1, Sets: []rollout.Set{other}},
			rollout.Decision{Pending: true, Resize: []rollout.Resize{{Name: "d-old", UID: "u2", Version: "8", From: 3, To: 1}}, Why: "resize set d-old 3→1"},
		},
		{
			"of two, the current one carries the size",
			rollout.Observed{Replicas: 3, Sets: []rollout.Set{other, current}},
			rollout.Decision{Why: "set d-new has the wanted size 3"},
		},
		{
			"I10: the deployment goes",
			rollout.Observed{Replicas: 3, Deleting: true, Sets: []rollout.Set{current, going}},
			rollout.Decision{Delete: []rollout.Target{{Name: "d-new", UID: "u1", Version: "7"}}, Why: "delete 1 sets: the deployment is being deleted"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, rollout.Decide(row.in))
		})
	}
}
