//go:build integration

package libvirt_test

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	client "github.com/digitalocean/go-libvirt"
	"github.com/stretchr/testify/require"

	"millwright/provider"
)

// procedureNumbersByMethod are the numbers, in libvirt's protocol, of the requests that determine the result of a
// method.
var procedureNumbersByMethod = map[provider.Method]uint32{
	provider.MethodCreateInstance: 10,  // REMOTE_PROC_DOMAIN_CREATE_XML
	provider.MethodDeleteInstance: 12,  // REMOTE_PROC_DOMAIN_DESTROY
	provider.MethodInstanceStatus: 273, // REMOTE_PROC_CONNECT_LIST_ALL_DOMAINS
	provider.MethodListInstances:  273,
}

// proxy forwards packets between the provider and the daemon. A proxy can refuse requests, block requests, and drop
// answers.
type proxy struct {
	socketPath string

	mu                sync.Mutex
	refusals          map[uint32][]refusal
	hangingProcedures map[uint32]bool
	lostAnswers       map[uint32]bool
}

type refusal struct {
	errorNumber client.ErrorNumber
	message     string
}

func newProxy(t *testing.T, daemon string) *proxy {
	t.Helper()
	p := &proxy{
		socketPath:        filepath.Join(filepath.Dir(daemon), "proxy"),
		refusals:          map[uint32][]refusal{},
		hangingProcedures: map[uint32]bool{},
		lostAnswers:       map[uint32]bool{},
	}
	listener, err := net.Listen("unix", p.socketPath)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serveConnection(from, daemon)
		}
	}()
	return p
}

func (p *proxy) serveConnection(from net.Conn, daemon string) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("unix", daemon)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = io.Copy(from, to)
	}()
	for {
		packet, err := readPacket(from)
		if err != nil {
			return
		}
		refused, held := p.refusalOfRequest(packet)
		switch {
		case held:
		case refused.errorNumber != 0:
			_, err = from.Write(refused.answerPacket(packet))
		case p.shouldLoseAnswer(packet):
			_ = from.Close()
			_, _ = to.Write(packet)
			<-answered // the daemon has executed the request, and the proxy drops the answer
			return
		default:
			_, err = to.Write(packet)
		}
		if err != nil {
			return
		}
	}
}

// readPacket reads a packet of libvirt's protocol. A packet consists of its length, program, version, procedure, type,
// serial, status, and payload. Each number has four bytes.
func readPacket(from io.Reader) ([]byte, error) {
	packet := make([]byte, 4)
	if _, err := io.ReadFull(from, packet); err != nil {
		return nil, err
	}
	packet = append(packet, make([]byte, binary.BigEndian.Uint32(packet)-4)...)
	_, err := io.ReadFull(from, packet[4:])
	return packet, err
}

// refusalOfRequest returns the queued refusal for a request, if there is one, and reports whether the proxy blocks the
// request.
func (p *proxy) refusalOfRequest(packet []byte) (refusal, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	procedure := binary.BigEndian.Uint32(packet[12:])
	queue := p.refusals[procedure]
	if len(queue) == 0 {
		return refusal{}, p.hangingProcedures[procedure]
	}
	p.refusals[procedure] = queue[1:]
	return queue[0], false
}

// answerPacket returns the packet with which a daemon refuses the request.
func (r refusal) answerPacket(request []byte) []byte {
	const reply, failed = 1, 1
	packet := append([]byte{0, 0, 0, 0}, request[4:16]...)
	for _, number := range []uint32{reply, binary.BigEndian.Uint32(request[20:]), failed, uint32(r.errorNumber), 0, 1, uint32(len(r.message))} {
		packet = binary.BigEndian.AppendUint32(packet, number)
	}
	packet = append(packet, r.message...)
	packet = append(packet, make([]byte, (4-len(r.message)%4)%4)...)
	packet = append(packet, make([]byte, 4*8)...) // error level and optional fields: all zero
	binary.BigEndian.PutUint32(packet, uint32(len(packet)))
	return packet
}

func (p *proxy) refuseNextRequest(method provider.Method, number client.ErrorNumber, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	procedure := procedureNumbersByMethod[method]
	p.refusals[procedure] = append(p.refusals[procedure], refusal{number, message})
}

// loseNextAnswer makes the proxy close the connection before the next answer to a method's request.
func (p *proxy) loseNextAnswer(method provider.Method) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lostAnswers[procedureNumbersByMethod[method]] = true
}

func (p *proxy) shouldLoseAnswer(packet []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	procedure := binary.BigEndian.Uint32(packet[12:])
	defer delete(p.lostAnswers, procedure)
	return p.lostAnswers[procedure]
}

func (p *proxy) hangRequests(method provider.Method) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangingProcedures[procedureNumbersByMethod[method]] = true
}
