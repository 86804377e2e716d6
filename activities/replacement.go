package activities

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/replace"
	"millwright/observe"
)

// Granted is what GrantReplacements did.
type Granted struct {
	Wrote    bool   // anything at all
	Versions Gate   // to wait for
	Why      string // what was granted, ended and held, and why
}

// GrantReplacements grants replacements within a deployment's budget: first in the deployment's status, with the version
// that the decision saw, so that no two grants are made of one piece of the budget, then by marks on the machines. A mark
// that is lost between the two is written by the next run. Running it twice grants nothing twice.
func (a *Activities) GrantReplacements(ctx context.Context, in Read) (Granted, error) {
	family, err := a.family(ctx, in)
	if err != nil {
		return Granted{}, err
	}
	d, members := family.Deployment, family.Members
	if d == nil {
		return Granted{}, objectGone(in.Ref)
	}
	plan := replace.Decide(a.Cluster.ReplaceObserved(d, members, time.Now()))
	granted := Granted{Versions: Gate{}, Why: plan.Why}
	if plan.Changed {
		d = d.DeepCopy()
		d.Status.Replacements = replacements(plan.Grants)
		if d, err = a.Cluster.Client().MachineV1alpha1().MachineDeployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
			return Granted{}, writeError(in.Ref, err)
		}
		granted.Versions.Raise(observe.Deployments, d.ResourceVersion)
		granted.Wrote = true
	}
	reasons := map[string]string{}
	for _, g := range plan.Grants {
		reasons[g.UID] = g.Reason
	}
	for _, m := range members {
		if !slices.Contains(plan.Mark, string(m.UID)) {
			continue
		}
		version, marked, err := a.mark(ctx, m)
		if err != nil {
			return Granted{}, err
		}
		granted.Versions.Raise(observe.Machines, version)
		granted.Wrote = granted.Wrote || marked
		if marked {
			a.Recorder.Eventf(d, corev1.EventTypeNormal, v1alpha1.ReasonReplacementGranted, "Machine %s is replaced: %s", m.Name, reasons[string(m.UID)])
		}
	}
	return granted, nil
}

// mark tells a machine that its replacement was granted, and reports whether it did: one that was told before, recovered
// or went meanwhile is left alone.
func (a *Activities) mark(ctx context.Context, m *v1alpha1.Machine) (version string, marked bool, err error) {
	in := Read{Ref: Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}}
	version, err = a.changeMachine(ctx, in, func(m *v1alpha1.Machine) map[string]any {
		if marked = observe.IsWaiting(m); !marked {
			return nil
		}
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			v1alpha1.AnnotationReplacementGranted: time.Now().UTC().Format(time.RFC3339),
		}}}
	})
	if gone := new(temporal.ApplicationError); errors.As(err, &gone) && gone.Type() == TypeObjectGone {
		return "", false, nil
	}
	return version, marked, err
}

// WithdrawReplacement takes the mark from a machine that is to live on.
func (a *Activities) WithdrawReplacement(ctx context.Context, in Read) (string, error) {
	return a.changeMachine(ctx, in, func(m *v1alpha1.Machine) map[string]any {
		if _, marked := m.Annotations[v1alpha1.AnnotationReplacementGranted]; !marked {
			return nil
		}
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationReplacementGranted: nil}}}
	})
}

func replacements(grants []replace.Grant) []v1alpha1.MachineReplacement {
	var list []v1alpha1.MachineReplacement
	for _, g := range grants {
		list = append(list, v1alpha1.MachineReplacement{
			UID: types.UID(g.UID), Name: g.Name, FailureDomain: g.Domain, Reason: g.Reason, GrantedAt: metav1.NewTime(g.At),
		})
	}
	return list
}
