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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/decide/verb"
	"millwright/observe"
)

// writeRetries is how often an order is written again when somebody else wrote the machine meanwhile. Each time the machine
// is read and checked anew.
const writeRetries = 3

// clerk is what an order is carried out with.
type clerk struct {
	machines versioned.Interface
	events   typedcorev1.EventsGetter // nil where what is written says who and why
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
		d := verb.Decide(o.Order, observe.VerbFacts(m, c.now()))
		switch {
		case d.Refused != "":
			return errors.New(d.Refused)
		case d.Same:
			return o.tell(c, m, d)
		}
		if uid == "" && o.Verb == release && !o.yes {
			if err := confirm(c, m); err != nil {
				return err
			}
		}
		uid = m.UID
		written, err := c.machines.MachineV1alpha1().Machines(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, o.patch(m, d), metav1.PatchOptions{})
		switch {
		case apierrors.IsConflict(err):
		case err != nil:
			return fmt.Errorf("%s machine %s: %w", o.Verb, key, err)
		default:
			return errors.Join(o.tell(c, m, d), o.record(ctx, c, written, d.Written(o.annotation, m.Annotations[o.annotation])))
		}
	}
	return fmt.Errorf("%s machine %s: others wrote it %d times meanwhile, and nothing was written: try again", o.Verb, key, 1+writeRetries)
}

// patch writes one annotation, if the machine is still the one that was read.
func (o order) patch(m *v1alpha1.Machine, d verb.Decision) []byte {
	value := &d.Value
	if d.Remove {
		value = nil
	}
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
