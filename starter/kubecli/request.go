package kubecli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/observe/machine"
	"millwright/starter/printers"
)

// MaxWriteRetries is how many times a request is written again after a conflict. Before each write, the object is read
// and checked again.
const MaxWriteRetries = 3

// ExampleReasonFlag is the flag for a reason in example commands.
const ExampleReasonFlag = "--reason …"

// CommandHelp is the help of a command.
type CommandHelp struct {
	Name    request.Command
	Short   string
	Long    string
	Example string
}

// Request is a request with the flags of the command line.
type Request struct {
	request.CommandOrder
	Kind             request.Kind
	skipConfirmation bool // write without asking the user
}

// NewRequest returns a request without arguments.
func NewRequest(kind request.Kind, command request.Command) Request {
	return Request{CommandOrder: request.CommandOrder{Command: command, FromCommandLine: true}, Kind: kind}
}

// RequestCommand returns the command that makes a request. The flags of the command are the arguments that the request
// accepts.
func (o *ObjectFlags) RequestCommand(h CommandHelp, read subjectReader) *cobra.Command {
	r, to := NewRequest(o.Kind, h.Name), int64(0)
	c := &cobra.Command{
		Use: fmt.Sprintf("%s %s", h.Name, strings.ToUpper(string(o.Kind))), Short: h.Short, Long: h.Long, Example: h.Example,
		Args: ObjectArgs, ValidArgsFunction: o.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("to-revision") {
				r.Revision = &to
			}
			return o.SendRequest(c, args, r, read)
		},
	}
	flags := c.Flags()
	// resume removes the annotation that would store actor and reason
	if o.Kind != request.KindMachine || h.Name != request.Resume {
		r.RegisterActorFlags(c)
	}
	for _, spec := range request.CommandSpecs(o.Kind) {
		if spec.Command == h.Name {
			for _, argument := range spec.Arguments {
				r.addArgumentFlag(flags, argument, &to)
			}
		}
	}
	if h.Name == request.AbandonInstance || h.Name == request.Force {
		flags.BoolVar(&r.skipConfirmation, "yes", false, "do not ask for confirmation")
	}
	return c
}

// addArgumentFlag adds the flag for an argument. The flag for a revision, which only undo has, writes to revision.
func (r *Request) addArgumentFlag(flags *pflag.FlagSet, argument string, revision *int64) {
	switch {
	case argument == "for":
		flags.StringVar(&r.ExtendFor, argument, "", "how much later than the present deadline, such as 1h30m")
	case argument == "until":
		flags.StringVar(&r.ExtendUntil, argument, "", "new deadline, as an RFC 3339 time")
	case argument == "in-advance":
		flags.BoolVar(&r.ValidInAdvance, argument, false, "write the request although the machine is not being deleted yet")
	case argument == "back":
		flags.BoolVar(&r.RollsBack, argument, false, "go back as undo does, instead of holding the rollout")
	case argument == "pin":
		flags.BoolVar(&r.PinsMachines, argument, false, "keep the template, and pin the machines to the former revision")
	case argument == "steps":
		flags.IntVar(
			&r.ApprovedStepCount,
			argument,
			0,
			"number of steps of the revision that are passed in all; 0: all up to the step at which the rollout waits",
		)
	case r.Command == request.Undo:
		flags.Int64Var(revision, "to-revision", 0, "revision to return to; 0: the previous one")
	}
}

// RegisterActorFlags adds the flags for actor and reason.
func (r *Request) RegisterActorFlags(c *cobra.Command) {
	c.Flags().StringVar(&r.Reason, "reason", "", "reason of the request; shown wherever the request takes effect")
	c.Flags().
		StringVar(&r.Actor, "as-user", "", "actor of the request; default: the login name, or, for root, the user of the kubeconfig")
}

// SendRequest writes a request on the object that the arguments name, as for ParseKey.
func (o *ObjectFlags) SendRequest(c *cobra.Command, args []string, r Request, read subjectReader) error {
	key, err := o.ParseKey(c, args)
	if err != nil {
		return err
	}
	if refused := request.CheckOrder(r.Kind, "", r.CommandOrder); refused != "" {
		return errors.New(refused)
	}
	clients, err := o.NewClients(o.ClusterAccess)
	if err != nil {
		return err
	}
	if r.Actor == "" && c.Flags().Lookup("as-user") != nil {
		r.Actor = cmp.Or(ActorName(c.Context(), clients), "somebody")
	}
	return requestWriter{clients, read, o.Now, c.InOrStdin(), c.OutOrStdout()}.writeRequest(c.Context(), key, r)
}

// requestWriter writes a request.
type requestWriter struct {
	Clients
	readSubject subjectReader
	now         func() time.Time
	in          io.Reader
	out         io.Writer
}

// Subject is the object of a request as it was read.
type Subject struct {
	metav1.Object
	Facts           request.Facts
	ResultPrefix    string // beginning of the sentence that says what was written
	ConfirmQuestion string // question that the user must answer with yes before the write; empty if there is no question
	// DescribeEffect returns the effect of a decision, the command that undoes the decision, and the command that shows
	// the effect. If there is no such command, the string is empty.
	DescribeEffect func(d request.Decision) (next, back, follow string)
	SendPatch      func(ctx context.Context, data []byte) error
	// BuildPatch returns the merge patch for a decision. If BuildPatch is nil, machine.RequestPatch is used, which is
	// for Millwright's own kinds.
	BuildPatch func(request.Command, request.Decision) map[string]any
}

func (s Subject) mergePatch(r Request, d request.Decision) map[string]any {
	if s.BuildPatch != nil {
		return s.BuildPatch(r.Command, d)
	}
	return machine.RequestPatch(r.Kind, r.Command, d)
}

// subjectReader reads the object of a request, and the facts on which the decision about the request depends.
type subjectReader func(
	ctx context.Context, clients Clients, now time.Time, key types.NamespacedName, r Request,
) (Subject, error)

// writeRequest writes a request on its object, if the object's state allows the request, and prints what happens next.
// The write fails if the object has changed since the last read. A second call of writeRequest makes a second request.
func (w requestWriter) writeRequest(ctx context.Context, key types.NamespacedName, r Request) error {
	var uid types.UID
	for range 1 + MaxWriteRetries {
		s, err := w.readSubject(ctx, w.Clients, w.now(), key, r)
		if err != nil {
			return err
		}
		if uid != "" && s.GetUID() != uid {
			return fmt.Errorf("%s %s was replaced by another one of that name meanwhile: nothing was written", r.Kind, key)
		}
		d := request.Decide(r.CommandOrder, s.Facts)
		switch {
		case d.RefusalReason != "":
			return errors.New(d.RefusalReason)
		case d.Repeated:
			return w.printResult(s, d)
		}
		if s.ConfirmQuestion != "" && uid == "" && !r.skipConfirmation {
			if err := w.askForConfirmation(s.ConfirmQuestion); err != nil {
				return err
			}
		}
		uid = s.GetUID()
		patch := s.mergePatch(r, d)
		metadata := patch["metadata"].(map[string]any) // always present: each request sets or removes annotations
		metadata["uid"], metadata["resourceVersion"] = uid, s.GetResourceVersion()
		data, err := json.Marshal(patch)
		if err != nil {
			return fmt.Errorf("encode the patch of %s %s: %w", r.Kind, key, err)
		}
		switch err := s.SendPatch(ctx, data); {
		case apierrors.IsConflict(err):
		case err != nil:
			return fmt.Errorf("%s %s %s: %w", r.Command, r.Kind, key, err)
		default:
			return errors.Join(w.printResult(s, d), w.createEvent(ctx, s, r, d))
		}
	}
	return fmt.Errorf("%s %s %s: others wrote it %d times meanwhile, and nothing was written: try again",
		r.Command, r.Kind, key, 1+MaxWriteRetries)
}

// printResult prints the written request, its next effect, and the command that shows the effect.
func (w requestWriter) printResult(s Subject, d request.Decision) error {
	next, back, follow := s.DescribeEffect(d)
	text := fmt.Sprintf("%s%s\nNext: %s.\n", s.ResultPrefix, d.Message, next)
	if back != "" {
		text += fmt.Sprintf("To take it back: %s\n", back)
	}
	if follow != "" {
		text += fmt.Sprintf("To follow it: %s\n", follow)
	}
	_, err := io.WriteString(w.out, text)
	return err
}

// eventReasonRequestApplied is the reason of the event about a request. The activity that applies requests uses the
// same reason.
const eventReasonRequestApplied = "RequestApplied"

// createEvent creates an event with actor and reason for a request whose annotation cannot store actor and reason.
func (w requestWriter) createEvent(ctx context.Context, s Subject, r Request, d request.Decision) error {
	if r.Command != request.Preserve && r.Command != request.Unpreserve {
		return nil
	}
	now := metav1.NewTime(w.now())
	_, err := w.Core.Events(s.GetNamespace()).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.GetNamespace(), GenerateName: s.GetName() + "."},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Machine",
			Namespace: s.GetNamespace(), Name: s.GetName(), UID: s.GetUID(),
		},
		Type: corev1.EventTypeNormal, Reason: eventReasonRequestApplied, Message: r.Summary() + "; " + d.Message,
		Source: corev1.EventSource{Component: "millwright-starter"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("the machine was changed, but the event with actor and reason was not created: %w", err)
	}
	return nil
}

// NextStep is a command that a person can use now, as JSON and YAML show it.
type NextStep struct {
	Purpose string `json:"purpose"` // what the command is for, such as "To go on"
	Command string `json:"command"`
}

// NextSteps splits lines of the form "PURPOSE: COMMAND".
func NextSteps(lines []string) (steps []NextStep) {
	for _, line := range lines {
		purpose, command, _ := strings.Cut(line, ": ")
		steps = append(steps, NextStep{purpose, command})
	}
	return steps
}

// ErrNotConfirmed means that the user did not answer yes.
var ErrNotConfirmed = errors.New("not confirmed: nothing was written")

// askForConfirmation asks the user to confirm a write that cannot be undone.
func (w requestWriter) askForConfirmation(question string) error {
	_, _ = fmt.Fprintf(w.out, "%s Type yes: ", question)
	printers.FlushScreen(w.out)
	answer, err := bufio.NewReader(w.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return ErrNotConfirmed
	}
	return nil
}
