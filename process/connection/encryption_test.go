package connection

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// keyLine is a line of a file of keys. The key consists of the letter, 32 times.
func keyLine(name, letter string) string {
	return name + " " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, keySize))) + "\n"
}

func readKeysFromText(t *testing.T, text string) *Keys {
	t.Helper()
	keys, err := ReadKeys(writeFile(t, text))
	require.NoError(t, err)
	return keys
}

func newPayload(t *testing.T, value any) *commonpb.Payload {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayload(value)
	require.NoError(t, err)
	return p
}

func TestPayloadsAreEncryptedAndDecrypted(t *testing.T) {
	keys := readKeysFromText(t, "# of the installation\n\n"+keyLine("a", "a"))
	plain := []*commonpb.Payload{newPayload(t, "machine web-1"), newPayload(t, nil)}
	encrypted, err := keys.Encode(plain)
	require.NoError(t, err)
	for _, p := range encrypted {
		assert.Equal(t, "binary/encrypted", string(p.GetMetadata()["encoding"]))
		assert.NotContains(t, p.String(), "web-1")
	}
	again, err := keys.Encode(plain)
	require.NoError(t, err)
	assert.NotEqual(t, encrypted[0].GetData(), again[0].GetData(), "the same text looks different each time")

	decrypted, err := keys.Decode(append(encrypted, plain...))
	require.NoError(t, err)
	require.Len(t, decrypted, 4)
	for i, want := range append(plain, plain...) {
		assert.True(t, proto.Equal(want, decrypted[i]), "payload %d; one that was never encrypted stays as it is", i)
	}
}

func TestKeyRotation(t *testing.T) {
	before := readKeysFromText(t, keyLine("a", "a"))
	both := readKeysFromText(t, keyLine("a", "a")+keyLine("b", "b"))
	turned := readKeysFromText(t, keyLine("b", "b")+keyLine("a", "a"))
	after := readKeysFromText(t, keyLine("b", "b"))
	encode := func(k *Keys) []*commonpb.Payload {
		encrypted, err := k.Encode([]*commonpb.Payload{newPayload(t, "machine web-1")})
		require.NoError(t, err)
		return encrypted
	}
	for _, writer := range []*Keys{before, both} {
		for _, reader := range []*Keys{before, both, turned} {
			_, err := reader.Decode(encode(writer))
			require.NoError(t, err)
		}
	}
	for _, reader := range []*Keys{both, turned, after} {
		_, err := reader.Decode(encode(turned))
		require.NoError(t, err)
	}
	assertEncrypted(t, after, encode(before))
}

// assertEncrypted asserts that payloads stay encrypted, and that the error of their values names the key.
func assertEncrypted(t *testing.T, reader *Keys, encrypted []*commonpb.Payload) {
	t.Helper()
	read, err := reader.Decode(encrypted)
	require.NoError(t, err)
	require.Len(t, read, len(encrypted))
	for i, p := range read {
		assert.True(t, proto.Equal(encrypted[i], p))
		var text string
		err := DataConverter().FromPayload(p, &text)
		require.ErrorContains(
			t,
			err,
			`a payload is encrypted with the key "a", which is not in the file of --payload-keys-path, or it was changed`,
		)
		require.ErrorIs(t, err, converter.ErrUnableToDecode)
		assert.Empty(t, text)
	}
}

func TestChangedPayloadStaysEncrypted(t *testing.T) {
	keys, others := readKeysFromText(t, keyLine("a", "a")), readKeysFromText(t, keyLine("a", "z"))
	encrypted, err := keys.Encode([]*commonpb.Payload{newPayload(t, "machine web-1")})
	require.NoError(t, err)
	assertEncrypted(t, others, encrypted)
	encrypted[0].Data[20] ^= 1
	assertEncrypted(t, keys, encrypted)
	assertEncrypted(t, keys, []*commonpb.Payload{{Metadata: encrypted[0].GetMetadata()}})
}

// The log contains each missing key once, and never the content of payloads. Any sender may write the names.
func TestKeyOfUndecryptablePayloadsIsLoggedOnce(t *testing.T) {
	var lines bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	keys := readKeysFromText(t, keyLine("a", "a"))
	for range 2 {
		for _, p := range undecryptablePayloads(t, keys) {
			_, err := keys.Decode([]*commonpb.Payload{p})
			require.NoError(t, err)
		}
	}
	for _, name := range []string{"nobodys", "a", ""} {
		assert.Equal(t, 1, strings.Count(lines.String(), fmt.Sprintf(`key="\"%s\""`, name)), lines.String())
	}
	assert.Contains(t, lines.String(), keys.path)
	assert.NotContains(t, lines.String(), "web-1")

	for i := range 1000 {
		name := fmt.Sprintf("%d\n%s", i, strings.Repeat("x", 1000))
		poison := &commonpb.Payload{
			Metadata: map[string][]byte{"encoding": []byte("binary/encrypted"), keyIDMetadataKey: []byte(name)},
		}
		_, err := keys.Decode([]*commonpb.Payload{poison})
		require.NoError(t, err)
	}
	assert.Less(t, lines.Len(), 50_000, "the log does not grow with the names")
}

// DataConverter encodes values like the SDK's own converter.
func TestDataConverterMatchesSDK(t *testing.T) {
	own := converter.GetDefaultDataConverter()
	for _, value := range []any{nil, "text", []byte("bytes"), map[string]int{"n": 1}, newPayload(t, "proto")} {
		want, err := own.ToPayload(value)
		require.NoError(t, err)
		got, err := DataConverter().ToPayload(value)
		require.NoError(t, err)
		assert.True(t, proto.Equal(want, got), "%v", value)
		assert.Equal(t, own.ToString(want), DataConverter().ToString(want))
	}
}

// A client without keys also has the converter: its error names the missing key.
func TestAClientHasTheDataConverter(t *testing.T) {
	clearTemporalEnvironment(t)
	for _, arguments := range [][]string{nil, {"--payload-keys-path", writeFile(t, keyLine("a", "a"))}} {
		options, err := parseFlags(t, arguments...).ClientOptions()
		require.NoError(t, err)
		var v valueWithDecryptionError
		cutOff := undecryptablePayloads(t, readKeysFromText(t, keyLine("a", "a")))["cut off"]
		require.NoError(t, options.DataConverter.FromPayload(cutOff, &v))
		assert.NotEmpty(t, v.undecryptableReason)
	}
}

// valueWithDecryptionError is a value that records why it could not be read.
type valueWithDecryptionError struct{ undecryptableReason string }

func (v *valueWithDecryptionError) MarkUndecryptable(why string) { v.undecryptableReason = why }

func TestValueRecordsWhyItIsUndecryptable(t *testing.T) {
	for name, p := range undecryptablePayloads(t, readKeysFromText(t, keyLine("a", "a"))) {
		var v valueWithDecryptionError
		require.NoError(t, DataConverter().FromPayloads(&commonpb.Payloads{Payloads: []*commonpb.Payload{p}}, &v), name)
		assert.Contains(t, v.undecryptableReason, "a payload is encrypted with the key ", name)
	}
}

func TestKeyErrorsShowNoKey(t *testing.T) {
	const secret = "Y2FuYXJ5LW9mLXRoZS1rZXk="
	for name, row := range map[string]struct{ text, says string }{
		"an empty file": {"# none\n", "has no key"},
		"one word":      {keyLine("a", "a") + secret, "line 2"},
		"three words":   {"a b " + secret, "it has 3 words, not two"},
		"not base64":    {"a " + secret + "!", "not base64"},
		"too short":     {"a " + secret, "the key has 17 bytes, not 32"},
		"twice":         {keyLine("a", "a") + keyLine("a", "b"), "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadKeys(writeFile(t, row.text))
			require.ErrorContains(t, err, row.says)
			assert.NotContains(t, err.Error(), secret)
			assert.NotContains(t, err.Error(), strings.Fields(keyLine("a", "b"))[1])
		})
	}
}

// invokerWithInterceptors returns a server behind the interceptors.
func invokerWithInterceptors(t *testing.T, keys *Keys, invoke grpc.UnaryInvoker) grpc.UnaryInvoker {
	t.Helper()
	chain, err := keys.encryptionInterceptors()
	require.NoError(t, err)
	for _, c := range slices.Backward(chain) {
		next, interceptor := invoke, c
		invoke = func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, options ...grpc.CallOption) error {
			return interceptor(ctx, method, request, reply, c, next, options...)
		}
	}
	return invoke
}

// sendThroughInterceptors sends a request through the interceptors and returns the request that the server received.
// The server answers with the content of answer.
func sendThroughInterceptors(
	t *testing.T,
	keys *Keys,
	attempts int,
	request, answer, reply proto.Message,
) proto.Message {
	t.Helper()
	var received proto.Message
	invoke := invokerWithInterceptors(
		t,
		keys,
		func(_ context.Context, _ string, request, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			received = request.(proto.Message)
			proto.Merge(reply.(proto.Message), answer)
			return nil
		},
	)
	for range attempts {
		proto.Reset(reply)
		require.NoError(t, invoke(t.Context(), "", request, reply, nil))
	}
	return received
}

// Temporal's server cannot read what it stores, and answers are decrypted, even if no SDK client decodes the answers.
func TestRequestsAreEncryptedAndAnswersDecrypted(t *testing.T) {
	keys := readKeysFromText(t, keyLine("a", "a"))
	const secret = "web-1"
	text := func() *commonpb.Payload { return newPayload(t, secret) }
	failure := func() *failurepb.Failure {
		return &failurepb.Failure{
			Message: "no capacity for " + secret,
			Cause:   &failurepb.Failure{Message: "cloud: " + secret},
		}
	}
	for name, row := range map[string]struct{ request, answer, empty proto.Message }{
		"a start with memo and summary; the memo of a description": {
			request: &workflowservice.StartWorkflowExecutionRequest{Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{text()}}, Memo: &commonpb.Memo{Fields: map[string]*commonpb.Payload{"m": text()}}},
			empty:   &workflowservice.DescribeWorkflowExecutionResponse{},
			answer:  &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Memo: &commonpb.Memo{Fields: map[string]*commonpb.Payload{"m": text()}}}},
		},
		"a heartbeat; it and the last failure in a description": {
			request: &workflowservice.RecordActivityTaskHeartbeatRequest{Details: &commonpb.Payloads{Payloads: []*commonpb.Payload{text()}}},
			empty:   &workflowservice.DescribeWorkflowExecutionResponse{},
			answer: &workflowservice.DescribeWorkflowExecutionResponse{PendingActivities: []*workflowpb.PendingActivityInfo{{
				HeartbeatDetails: &commonpb.Payloads{Payloads: []*commonpb.Payload{text()}}, LastFailure: failure(),
			}}},
		},
		"a failure of an activity; a history": {
			request: &workflowservice.RespondActivityTaskFailedRequest{Failure: failure()},
			empty:   &workflowservice.GetWorkflowExecutionHistoryResponse{},
			answer: &workflowservice.GetWorkflowExecutionHistoryResponse{History: &historypb.History{Events: []*historypb.HistoryEvent{{
				Attributes: &historypb.HistoryEvent_ActivityTaskFailedEventAttributes{ActivityTaskFailedEventAttributes: &historypb.ActivityTaskFailedEventAttributes{Failure: failure()}},
			}}}},
		},
		"a schedule": {
			request: &workflowservice.CreateScheduleRequest{Schedule: newSchedule(text())},
			empty:   &workflowservice.DescribeScheduleResponse{},
			answer:  &workflowservice.DescribeScheduleResponse{Schedule: newSchedule(text())},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := proto.Clone(row.request)
			received := sendThroughInterceptors(t, keys, 1, row.request, row.empty, proto.Clone(row.empty))
			assert.NotContains(t, messageText(received), secret)
			assert.True(t, proto.Equal(want, row.request), "the request itself is as it was")

			stored := sendThroughInterceptors(t, keys, 1, row.answer, row.empty, proto.Clone(row.empty)) // an encrypted answer
			require.NotContains(t, messageText(stored), secret)
			reply := proto.Clone(row.empty)
			sendThroughInterceptors(t, keys, 1, row.empty, stored, reply)
			assert.True(t, proto.Equal(withoutEncodedAttributes(row.answer), withoutEncodedAttributes(reply)), "%v", reply)
		})
	}
}

func newSchedule(p *commonpb.Payload) *schedulepb.Schedule {
	return &schedulepb.Schedule{Action: &schedulepb.ScheduleAction{Action: &schedulepb.ScheduleAction_StartWorkflow{
		StartWorkflow: &workflowpb.NewWorkflowExecutionInfo{Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{p}}},
	}}}
}

// withoutEncodedAttributes removes the encoded attributes of failures, which stay beside the decoded attributes.
func withoutEncodedAttributes(m proto.Message) proto.Message {
	m = proto.Clone(m)
	for f := findFailure(m); f != nil; f = f.GetCause() {
		f.EncodedAttributes = nil
	}
	return m
}

func findFailure(m proto.Message) *failurepb.Failure {
	switch m := m.(type) {
	case *workflowservice.DescribeWorkflowExecutionResponse:
		for _, a := range m.GetPendingActivities() {
			return a.GetLastFailure()
		}
	case *workflowservice.GetWorkflowExecutionHistoryResponse:
		return m.GetHistory().GetEvents()[0].GetActivityTaskFailedEventAttributes().GetFailure()
	}
	return nil
}

// The SDK sends the same request again after some errors.
func TestARequestThatIsSentAgainIsEncryptedOnce(t *testing.T) {
	keys := readKeysFromText(t, keyLine("a", "a"))
	empty := &workflowservice.RespondActivityTaskFailedResponse{}
	request := &workflowservice.RespondActivityTaskFailedRequest{
		Failure: &failurepb.Failure{
			Message: "no capacity",
		},
		LastHeartbeatDetails: &commonpb.Payloads{Payloads: []*commonpb.Payload{newPayload(t, "web-1")}},
	}
	received := sendThroughInterceptors(t, keys, 3, request, empty, empty).(*workflowservice.RespondActivityTaskFailedRequest)
	details, err := keys.Decode(received.GetLastHeartbeatDetails().GetPayloads())
	require.NoError(t, err)
	var value string
	require.NoError(t, converter.GetDefaultDataConverter().FromPayload(details[0], &value))
	assert.Equal(t, "web-1", value)
	attributes, err := keys.Decode([]*commonpb.Payload{received.GetFailure().GetEncodedAttributes()})
	require.NoError(t, err)
	assert.Contains(t, string(attributes[0].GetData()), "no capacity")
}

// undecryptablePayloads returns payloads that a process with the key "a" cannot decrypt. The payloads are encrypted
// with an unknown key, encrypted with another key of the same name, modified in transit, or do not contain a payload.
func undecryptablePayloads(t *testing.T, keys *Keys) map[string]*commonpb.Payload {
	t.Helper()
	encode := func(k *Keys) *commonpb.Payload {
		encrypted, err := k.Encode([]*commonpb.Payload{newPayload(t, "machine web-1")})
		require.NoError(t, err)
		return encrypted[0]
	}
	changed, noise := encode(keys), encode(keys)
	changed.Data[20] ^= 1
	noise.Data = keys.ciphers["a"].Seal(nil, nil, []byte("no payload"), nil)
	return map[string]*commonpb.Payload{
		"a key that nobody has":     encode(readKeysFromText(t, keyLine("nobodys", "b"))),
		"a key of the same name":    encode(readKeysFromText(t, keyLine("a", "z"))),
		"changed on the way":        changed,
		"cut off":                   {Metadata: changed.GetMetadata()},
		"no name of a key":          {Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}, Data: []byte("x")},
		"what is inside is nothing": noise,
	}
}

// Any sender of signals can send a signal that no process can decrypt. The run still gets its tasks. The signal stays
// encrypted, and is never used as a value.
func TestTaskWithUndecryptableSignalArrives(t *testing.T) {
	keys := readKeysFromText(t, keyLine("a", "a"))
	good, err := keys.Encode([]*commonpb.Payload{newPayload(t, "good")})
	require.NoError(t, err)
	for name, poison := range undecryptablePayloads(t, keys) {
		t.Run(name, func(t *testing.T) {
			poll := &workflowservice.PollWorkflowTaskQueueResponse{
				History: &historypb.History{Events: []*historypb.HistoryEvent{newSignalEvent(poison), newSignalEvent(good[0])}},
			}
			want := proto.Clone(poison)
			reply := &workflowservice.PollWorkflowTaskQueueResponse{}
			sendThroughInterceptors(t, keys, 1, &workflowservice.PollWorkflowTaskQueueRequest{}, poll, reply)
			events := reply.GetHistory().GetEvents()
			input := func(i int) *commonpb.Payload {
				return events[i].GetWorkflowExecutionSignaledEventAttributes().GetInput().GetPayloads()[0]
			}
			assert.True(t, proto.Equal(want, input(0)), "%v", input(0))
			assert.True(t, proto.Equal(newPayload(t, "good"), input(1)), "%v", input(1))
		})
	}
}

func newSignalEvent(p *commonpb.Payload) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{
		Attributes: &historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes{
			WorkflowExecutionSignaledEventAttributes: &historypb.WorkflowExecutionSignaledEventAttributes{
				SignalName: "changed", Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{p}},
			},
		},
	}
}

// messageText returns a message as text, with its payloads unchanged.
func messageText(m proto.Message) string { return fmt.Sprint(m) }

// An error of the server is returned unchanged. After an error of the encryption, the SDK does not send the request
// again.
func TestServerErrorsAreReturnedUnchanged(t *testing.T) {
	fails := status.Error(codes.Unavailable, "shard is moving")
	ask := invokerWithInterceptors(
		t,
		readKeysFromText(t, keyLine("a", "a")),
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return fails },
	)
	err := ask(t.Context(), "", &workflowservice.QueryWorkflowRequest{}, &workflowservice.QueryWorkflowResponse{}, nil)
	assert.Equal(t, codes.Unavailable, status.Code(err))
	fails = fmt.Errorf("encrypt a payload: it is no UTF-8")
	err = ask(t.Context(), "", &workflowservice.QueryWorkflowRequest{}, &workflowservice.QueryWorkflowResponse{}, nil)
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
}
