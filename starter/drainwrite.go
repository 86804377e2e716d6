package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/observe"
)

// writeRetries is how often an order is written again when somebody else wrote the machine meanwhile. Each time the machine
// is read and checked anew.
const writeRetries = 3

// clerk is what an order is carried out with.
type clerk struct {
	machines versioned.Interface
	now      func() time.Time
	in       io.Reader
	out      io.Writer
}

// carryOut writes the order on the machine, if the machine allows it, and says what happens next. The write holds only for
// the machine as it was read. Doing it again writes the same annotation again.
func (o order) carryOut(ctx context.Context, c clerk, key types.NamespacedName) error {
	var uid types.UID
	for range 1 + writeRetries {
		m, err := find(ctx, c.machines, key)
		if err != nil {
			return err
		}
		if uid != "" && m.UID != uid {
			return fmt.Errorf("machine %s was replaced by another one of that name meanwhile: nothing was written", key)
		}
		if err := o.check(m); err != nil {
			return err
		}
		value, err := o.value(m, c.now())
		if err != nil {
			return err
		}
		if uid == "" && o.name == release && !o.yes {
			if err := confirm(c, m); err != nil {
				return err
			}
		}
		uid = m.UID
		_, err = c.machines.MachineV1alpha1().Machines(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, o.patch(m, value), metav1.PatchOptions{})
		switch {
		case apierrors.IsConflict(err):
		case err != nil:
			return fmt.Errorf("%s machine %s: %w", o.name, key, err)
		default:
			return o.tell(c, m, value)
		}
	}
	return fmt.Errorf("%s machine %s: others wrote it %d times meanwhile, and nothing was written: try again", o.name, key, 1+writeRetries)
}

// check says why a verb makes no sense for a machine as it is.
func (o order) check(m *v1alpha1.Machine) error {
	switch {
	case o.name == resume && !held(m):
		return fmt.Errorf("machine %s is not held: there is nothing to resume", keyOf(m))
	case o.name == resume:
		return nil
	case m.DeletionTimestamp == nil && o.early && !o.inAdvance:
		return fmt.Errorf("%w; with --in-advance, %s waits for its deletion", notDeleting(m), o.name)
	case m.DeletionTimestamp == nil && !o.early:
		return notDeleting(m)
	default:
		return o.timely(m)
	}
}

// timely says why a verb comes too late.
func (o order) timely(m *v1alpha1.Machine) error {
	now := deletion.Stage(stage(m))
	switch {
	case o.pods && drainOver(m):
		return fmt.Errorf("the drain of machine %s is over, and its deletion is in stage %s: %s would change nothing", keyOf(m), now, o.name)
	case o.name == extend && (means(m) == drain.Delete || means(m) == drain.Kill):
		return fmt.Errorf("the deadline of machine %s has passed, its pods are deleted, and nothing is evicted again: extend comes too late", keyOf(m))
	case o.name == release && deletion.Later(now, deletion.Instance) != deletion.Instance:
		return fmt.Errorf("the instance of machine %s is gone, and its deletion is in stage %s: release would change nothing", keyOf(m), now)
	default:
		return nil
	}
}

// value is what the annotation shall say; nil takes it off.
func (o order) value(m *v1alpha1.Machine, now time.Time) (*string, error) {
	who := o.user
	if o.reason != "" {
		who += ": " + o.reason
	}
	switch o.name {
	case resume:
		return nil, nil
	case retry:
		return new(now.UTC().Format(time.RFC3339) + " " + who), nil
	case extend:
		until, err := o.extension(m, now)
		if err != nil {
			return nil, err
		}
		return new(until.UTC().Format(time.RFC3339) + " " + who), nil
	default:
		return new(who), nil
	}
}

// extension is until when pods shall be evicted. It has to be later than now, than the present deadline, and than what
// somebody asked for before.
func (o order) extension(m *v1alpha1.Machine, now time.Time) (time.Time, error) {
	present, from := deadline(m, now), now
	if wanted := observe.LadderFacts(m, &corev1.Node{}, 0, now).Extended; wanted.After(present) { // before the drain began
		present = wanted
	}
	if present.After(now) {
		from = present
	}
	until := from.Add(o.more)
	if o.until != "" {
		var err error
		if until, err = time.Parse(time.RFC3339, o.until); err != nil {
			return until, fmt.Errorf("--until is no RFC 3339 time: %w", err)
		}
	}
	until = until.Truncate(time.Second) // as it is written
	switch {
	case !until.After(now):
		return until, fmt.Errorf("extend until %s is not in the future: it is %s", clock(until, now), clock(now, now))
	case !until.After(present):
		return until, fmt.Errorf("extend until %s is not later than the present deadline of machine %s, %s: extend only gives more time", clock(until, now), keyOf(m), when(present, now))
	default:
		return until, nil
	}
}

// patch writes one annotation, if the machine is still the one that was read.
func (o order) patch(m *v1alpha1.Machine, value *string) []byte {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": m.UID, "resourceVersion": m.ResourceVersion, "annotations": map[string]any{o.annotation: value},
	}})
	if err != nil {
		panic(err) // strings in maps
	}
	return text
}

var errNotConfirmed = errors.New("not confirmed: nothing was written")

// confirm tells what a release does not do, and asks.
func confirm(c clerk, m *v1alpha1.Machine) error {
	_, _ = fmt.Fprintf(c.out, "%s\nRelease machine %s? Type yes: ", notDone(m), keyOf(m))
	answer, err := bufio.NewReader(c.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return errNotConfirmed
	}
	return nil
}
