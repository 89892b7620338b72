// amqp091-go (Go module) against a broker: logins, silent and lost connections, and all of its field types.
//
//	amqp091 [-peer] HOST:PORT [HOST:PORT ...]
//
// One check is one function; its comment says what it proves and names the rules of the spec.
// With several addresses the checks that name nodes use different ones. `-peer` (or `--peer`) says that the broker is
// RabbitMQ 4.0: checks whose outcome decisions.md changes are then skipped or tolerant, and say by which rule.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	waitTime  = 300 * time.Second
	checkTime = 900 * time.Second
	frameMax  = 131072
)

var (
	runID   = hex.EncodeToString(random(4))
	quorum  = amqp.Table{"x-queue-type": "quorum"}
	classic = amqp.Table{"x-queue-type": "classic"}
	both    = []amqp.Table{quorum, classic}
)

// --- what every check uses -----------------------------------------------------------------------------------

// failure and skipped end a check; they are thrown so that a check reads as what it does.
type failure struct{ why string }
type skipped struct{ why string }

func fail(format string, values ...any) {
	panic(failure{fmt.Sprintf(format, values...)})
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func ok[T any](value T, err error) T {
	must(err)
	return value
}

func equal(what string, got, expected any) {
	if !reflect.DeepEqual(got, expected) {
		fail("%s: got %#v, expected %#v", what, got, expected)
	}
}

// refused wants an error that is a close with exactly this code and text.
func refused(code int, text string, err error) {
	var closed *amqp.Error
	if !errors.As(err, &closed) {
		fail("not refused, expected %d %s, got %v", code, text, err)
	}
	equal("refusal", []any{closed.Code, closed.Reason}, []any{code, text})
}

func within[T any](what string, channel <-chan T) T {
	select {
	case value := <-channel:
		return value
	case <-time.After(waitTime):
		fail("not within %v: %s", waitTime, what)
		panic("unreachable")
	}
}

// eventually asks until the condition holds, at most waitTime.
func eventually(what string, condition func() bool) {
	deadline := time.Now().Add(waitTime)
	for !condition() {
		if time.Now().After(deadline) {
			fail("not within %v: %s", waitTime, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func random(size int) []byte {
	buffer := make([]byte, size)
	if _, err := rand.Read(buffer); err != nil {
		panic(err)
	}
	return buffer
}

func numbers(count int) []string {
	texts := make([]string, count)
	for n := range texts {
		texts[n] = fmt.Sprint(n)
	}
	return texts
}

// with is the table and some more keys.
func with(table amqp.Table, more amqp.Table) amqp.Table {
	joined := amqp.Table{}
	for _, each := range []amqp.Table{table, more} {
		for key, value := range each {
			joined[key] = value
		}
	}
	return joined
}

// scene has the connections, channels and names of one check; all is closed and deleted when the check ends.
type scene struct {
	addresses         []string
	peer              bool
	opened            []*amqp.Connection
	queues, exchanges []string
}

func (s *scene) dial(node int, config amqp.Config, user, vhost string) (*amqp.Connection, error) {
	address := s.addresses[node%len(s.addresses)]
	connection, err := amqp.DialConfig(fmt.Sprintf("amqp://%s@%s/%s", user, address, vhost), config)
	if err == nil {
		s.opened = append(s.opened, connection)
	}
	return connection, err
}

func (s *scene) connection(node int) *amqp.Connection {
	return s.connectionWith(node, amqp.Config{})
}

func (s *scene) connectionWith(node int, config amqp.Config) *amqp.Connection {
	return ok(s.dial(node, config, "guest:guest", "%2F"))
}

// channel is on a connection of its own, so that no error reaches another channel.
func (s *scene) channel(node int) *amqp.Channel {
	return confirming(s.connection(node))
}

func confirming(connection *amqp.Connection) *amqp.Channel {
	channel := ok(connection.Channel())
	must(channel.Confirm(false))
	return channel
}

func (s *scene) name() string {
	name := s.newName("q")
	s.queues = append(s.queues, name)
	return name
}

func (s *scene) exchangeName() string {
	name := s.newName("x")
	s.exchanges = append(s.exchanges, name)
	return name
}

func (s *scene) newName(kind string) string {
	return fmt.Sprintf("interop-amqp091-%s-%d-%s", runID, len(s.queues)+len(s.exchanges), kind)
}

func (s *scene) queue(channel *amqp.Channel, arguments amqp.Table) string {
	return ok(channel.QueueDeclare(s.name(), true, false, false, false, arguments)).Name
}

func (s *scene) exchange(channel *amqp.Channel, kind string, arguments amqp.Table) string {
	name := s.exchangeName()
	must(channel.ExchangeDeclare(name, kind, true, false, false, false, arguments))
	return name
}

func (s *scene) notOnThePeer(reason string) {
	if s.peer {
		panic(skipped{reason})
	}
}

// seenOn waits for a declare to reach another node, which may be an instant later (BND-11).
func (s *scene) seenOn(node int, queue string) {
	eventually(fmt.Sprintf("%s known on node %d", queue, node), func() bool {
		_, err := passive(s.channel(node), queue)
		var closed *amqp.Error
		return !errors.As(err, &closed) || closed.Code != amqp.NotFound
	})
}

func (s *scene) end() {
	for _, connection := range s.opened {
		_ = connection.CloseDeadline(time.Now().Add(10 * time.Second)) // many of them the broker has closed already
	}
	s.opened = nil
	if len(s.queues)+len(s.exchanges) == 0 {
		return
	}
	channel := s.channel(0)
	for _, queue := range s.queues {
		ok(channel.QueueDelete(queue, false, false, false))
	}
	for _, exchange := range s.exchanges {
		must(channel.ExchangeDelete(exchange, false, false))
	}
	must(s.opened[0].Close())
}

func passive(channel *amqp.Channel, queue string) (amqp.Queue, error) {
	return channel.QueueDeclarePassive(queue, true, false, false, false, nil)
}

// counts is ready messages and consumers.
func counts(channel *amqp.Channel, queue string) [2]int {
	found := ok(passive(channel, queue))
	return [2]int{found.Messages, found.Consumers}
}

func text(body string) amqp.Publishing {
	return amqp.Publishing{Body: []byte(body)}
}

// publish waits for the confirm, which must be an ack.
func publish(channel *amqp.Channel, exchange, key string, message amqp.Publishing) {
	confirmed(ok(channel.PublishWithDeferredConfirm(exchange, key, false, false, message)))
}

func confirmed(confirmation *amqp.DeferredConfirmation) {
	limit, cancel := context.WithTimeout(context.Background(), 3*waitTime)
	defer cancel()
	equal("ack", ok(confirmation.WaitContext(limit)), true)
}

// send publishes all before it waits for the confirms.
func send(channel *amqp.Channel, queue string, bodies ...string) {
	waiting := make([]*amqp.DeferredConfirmation, 0, len(bodies))
	for _, body := range bodies {
		waiting = append(waiting, ok(channel.PublishWithDeferredConfirm("", queue, false, false, text(body))))
	}
	for _, each := range waiting {
		confirmed(each)
	}
}

// get waits for the next message: what was returned may become ready an instant later (DUR-11).
func get(channel *amqp.Channel, queue string, noAck bool) amqp.Delivery {
	var message amqp.Delivery
	eventually("a message in "+queue, func() bool {
		delivery, found, err := channel.Get(queue, noAck)
		must(err)
		message = delivery
		return found
	})
	return message
}

// drained is the bodies of all ready messages.
func drained(channel *amqp.Channel, queue string) []string {
	bodies := []string{}
	for {
		delivery, found, err := channel.Get(queue, true)
		must(err)
		if !found {
			return bodies
		}
		bodies = append(bodies, string(delivery.Body))
	}
}

// inbox is a consumer that keeps what it is given.
type inbox struct {
	deliveries <-chan amqp.Delivery
	messages   []amqp.Delivery
}

func consume(channel *amqp.Channel, queue, tag string, noAck bool) *inbox {
	return &inbox{deliveries: ok(channel.Consume(queue, tag, noAck, false, false, false, nil))}
}

func (i *inbox) wait(count int) []amqp.Delivery {
	for len(i.messages) < count {
		what := fmt.Sprintf("%d messages; %d came", count, len(i.messages))
		i.messages = append(i.messages, within(what, i.deliveries))
	}
	return i.messages
}

func bodies(messages []amqp.Delivery) []string {
	texts := make([]string, len(messages))
	for n, message := range messages {
		texts[n] = string(message.Body)
	}
	return texts
}

// --- A. connection -------------------------------------------------------------------------------------------

// Product and capabilities as RabbitMQ's (CONN-01, CONN-07, CONN-08, Q-01).
func connectServerProperties(s *scene) {
	connection := s.connection(0)
	equal("protocol", [2]int{connection.Major, connection.Minor}, [2]int{0, 9})
	equal("locales", connection.Locales, []string{"en_US"})
	equal("product", connection.Properties["product"], "RabbitMQ")
	capabilities, _ := connection.Properties["capabilities"].(amqp.Table)
	names := "publisher_confirms exchange_exchange_bindings basic.nack consumer_cancel_notify connection.blocked " +
		"consumer_priorities authentication_failure_close per_consumer_qos direct_reply_to"
	for _, name := range strings.Fields(names) {
		equal(name, capabilities[name], true)
	}
}

// The broker proposes channel-max 2047, frame-max 131072, heartbeat 60 (CONN-16).
func connectTuneDefaults(s *scene) {
	all := amqp.Config{FrameSize: amqp.FrameSizeUnlimited, Heartbeat: time.Hour}
	config := s.connectionWith(0, all).Config
	equal("channel-max", config.ChannelMax, uint16(2047))
	equal("frame-max", config.FrameSize, frameMax)
	equal("heartbeat", config.Heartbeat, 60*time.Second)
}

// A client may ask for less, and gets its bodies in frames of that size (CONN-16, FRM-10).
func connectTuneLower(s *scene) {
	config := amqp.Config{FrameSize: 8192, ChannelMax: 5, Heartbeat: 9 * time.Second}
	connection := s.connectionWith(0, config)
	equal("frame-max", connection.Config.FrameSize, 8192)
	channel := confirming(connection)
	queue, body := s.queue(channel, quorum), random(100_000)
	publish(channel, "", queue, amqp.Publishing{Body: body})
	if !bytes.Equal(get(channel, queue, true).Body, body) {
		fail("the body changed")
	}
	for range 4 {
		ok(connection.Channel()) // five in all
	}
}

// AMQPLAIN is a login too (CONN-06, CONN-11).
func connectAmqplain(s *scene) {
	login := &amqp.AMQPlainAuth{Username: "guest", Password: "guest"}
	connection := s.connectionWith(0, amqp.Config{SASL: []amqp.Authentication{login}})
	ok(ok(connection.Channel()).QueueDeclare("", false, false, true, false, nil))
}

// Without the capability authentication_failure_close a bad password only ends the connection (CONN-14).
func connectBadPasswordDropped(s *scene) {
	_, err := s.dial(0, amqp.Config{}, "guest:wrong", "%2F")
	equal("error", err, error(amqp.ErrCredentials)) // the client's own: the broker said nothing
}

// An unknown virtual host is 530 (CONN-20).
func connectUnknownVhostRefused(s *scene) {
	_, err := s.dial(0, amqp.Config{}, "guest:guest", "missing-"+runID)
	refused(530, fmt.Sprintf("NOT_ALLOWED - vhost missing-%s not found", runID), err)
}

// With heartbeat 1 both sides stay content for longer than three of them (HB-01, HB-02).
func heartbeatsKeepAnIdleConnection(s *scene) {
	connection := s.connectionWith(0, amqp.Config{Heartbeat: time.Second})
	closed := connection.NotifyClose(make(chan *amqp.Error, 1))
	select {
	case err := <-closed:
		fail("closed: %v", err)
	case <-time.After(4500 * time.Millisecond): // idle time is the subject here
	}
	ok(ok(connection.Channel()).QueueDeclare("", false, false, true, false, nil))
}

// mutableConn drops what is written once it is muted.
type mutableConn struct {
	net.Conn
	muted atomic.Bool
}

func (c *mutableConn) Write(data []byte) (int, error) {
	if c.muted.Load() {
		return len(data), nil
	}
	return c.Conn.Write(data)
}

// dialMutable is a connection and the socket below it.
func (s *scene) dialMutable(node int, heartbeat time.Duration) (*amqp.Connection, *mutableConn) {
	socket := &mutableConn{}
	connection := s.connectionWith(node, amqp.Config{
		Heartbeat: heartbeat,
		Dial: func(network, address string) (net.Conn, error) {
			below, err := net.DialTimeout(network, address, waitTime)
			socket.Conn = below
			return socket, err
		},
	})
	return connection, socket
}

// A client that falls silent is dropped after two to three heartbeat times, without a close (HB-02).
func heartbeatsMissingEndTheConnection(s *scene) {
	connection, socket := s.dialMutable(0, time.Second)
	channel := confirming(connection)
	queue := s.queue(channel, quorum)
	send(channel, queue, "m")
	get(channel, queue, false)
	closed := connection.NotifyClose(make(chan *amqp.Error, 1))
	socket.muted.Store(true)
	started := time.Now()
	err := within("the connection dropped", closed)
	if took := time.Since(started); err == nil || err.Server || took < 1500*time.Millisecond {
		fail("dropped after %v with %v", took, err)
	}
	message := get(s.channel(0), queue, true)
	equal("returned", []any{string(message.Body), message.Redelivered}, []any{"m", true})
}

// A socket that is reset: unacked messages return, the exclusive queue goes (CONN-32).
func lostConnectionReturnsAndUnlocks(s *scene) {
	connection, socket := s.dialMutable(1, time.Minute)
	doomed, observer := confirming(connection), s.channel(0)
	queue := s.queue(doomed, quorum)
	mine := ok(doomed.QueueDeclare(s.name(), false, false, true, false, nil)).Name
	send(doomed, queue, "1", "2")
	consume(doomed, queue, "", false).wait(2)
	must(socket.Conn.(*net.TCPConn).SetLinger(0))
	must(socket.Close())
	s.seenOn(0, queue)
	equal("first returned", string(get(observer, queue, true).Body), "1")
	message := get(observer, queue, true)
	equal("second returned", []any{string(message.Body), message.Redelivered}, []any{"2", true})
	eventually("the exclusive name free", func() bool {
		_, err := s.channel(1).QueueDeclare(mine, false, false, true, false, nil)
		return err == nil
	})
}

// A new secret is accepted and changes nothing with the internal user database (CONN-30, CONN-31).
func updateSecret(s *scene) {
	connection := s.connection(0)
	must(connection.UpdateSecret("another", "interop"))
	ok(ok(connection.Channel()).QueueDeclare("", false, false, true, false, nil))
}

// --- B. channel ----------------------------------------------------------------------------------------------

// flow(true) is answered, flow(false) is 540 (CHN-08).
func channelFlow(s *scene) {
	channel := s.channel(0)
	must(channel.Flow(true))
	refused(540, "NOT_IMPLEMENTED - active=false", channel.Flow(false))
}

// prefetch-size is 540 (QOS-01).
func prefetchSizeRefused(s *scene) {
	refused(540, "NOT_IMPLEMENTED - prefetch_size!=0 (4096)", s.channel(0).Qos(0, 4096, false))
}

// nowait leaves out the answer, not the error (CHN-11).
func nowaitStillRefuses(s *scene) {
	channel := s.channel(0)
	queue := s.name()
	ok(channel.QueueDeclare(queue, true, false, false, true, quorum))
	equal("counts", counts(channel, queue), [2]int{0, 0})
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	ok(channel.QueueDeclare(queue, false, false, false, true, quorum))
	text := "PRECONDITION_FAILED - inequivalent arg 'durable' for queue '%s' in vhost '/': " +
		"received 'false' but current is 'true'"
	refused(406, fmt.Sprintf(text, queue), within("channel closed", closed))
}

// Forty channels of one connection publish and get at the same time (CHN-01).
func channelsAtOnce(s *scene) {
	connection := s.connection(0)
	results := make(chan any, 40)
	for n := range 40 {
		channel := confirming(connection)
		queue := s.queue(channel, both[n%2])
		go func() {
			defer func() { results <- recover() }()
			send(channel, queue, numbers(25)...)
			equal("messages", drained(channel, queue), numbers(25))
		}()
	}
	for range 40 {
		equal("failure", within("the channels", results), nil)
	}
}

// --- C. exchanges and routing --------------------------------------------------------------------------------

// routes publishes one message for each key and compares what each queue got.
func routes(s *scene, kind string, bindings map[string]string, keys []string, expected map[string][]string) {
	channel := s.channel(0)
	exchange := s.exchange(channel, kind, nil)
	queues := map[string]string{}
	for label, key := range bindings {
		queues[label] = s.queue(channel, classic)
		must(channel.QueueBind(queues[label], key, exchange, false, nil))
	}
	for _, key := range keys {
		publish(channel, exchange, key, text(key))
	}
	for label, queue := range queues {
		equal("keys routed by "+label, drained(channel, queue), expected[label])
	}
}

// direct wants the equal key (RTE-02).
func exchangeDirect(s *scene) {
	bindings := map[string]string{"a": "a", "also a": "a", "empty": "", "star": "*"}
	expected := map[string][]string{"a": {"a"}, "also a": {"a"}, "empty": {""}, "star": {"*"}}
	routes(s, "direct", bindings, []string{"a", "b", "", "*"}, expected)
}

// fanout ignores the key (RTE-03).
func exchangeFanout(s *scene) {
	bindings := map[string]string{"a": "a", "empty": ""}
	routes(s, "fanout", bindings, []string{"a", "b"}, map[string][]string{"a": {"a", "b"}, "empty": {"a", "b"}})
}

// topic: `*` one word, `#` any number, also empty words (RTE-04).
func exchangeTopic(s *scene) {
	keys := []string{"", "eu", "eu.de", "eu.de.berlin", "us", "eu..berlin"}
	bindings, expected := map[string]string{}, map[string][]string{
		"#":           keys,
		"*":           {"eu", "us"},
		"eu.#":        {"eu", "eu.de", "eu.de.berlin", "eu..berlin"},
		"eu.*":        {"eu.de"},
		"*.*.berlin":  {"eu.de.berlin", "eu..berlin"},
		"#.berlin":    {"eu.de.berlin", "eu..berlin"},
		"#.*.#":       {"eu", "eu.de", "eu.de.berlin", "us", "eu..berlin"},
		"eu.de":       {"eu.de"},
		"e*":          {},
		"eu.#.berlin": {"eu.de.berlin", "eu..berlin"},
	}
	for pattern := range expected {
		bindings[pattern] = pattern
	}
	routes(s, "topic", bindings, keys, expected)
}

// headers: all and any over all kinds of values (RTE-05, RTE-06).
func exchangeHeaders(s *scene) {
	channel := s.channel(0)
	exchange := s.exchange(channel, "headers", nil)
	wanted := amqp.Table{"flag": true, "count": int64(3), "name": "n", "none": nil}
	queues := map[string]string{}
	for _, match := range []string{"all", "any"} {
		queues[match] = s.queue(channel, classic)
		must(channel.QueueBind(queues[match], "", exchange, false, with(wanted, amqp.Table{"x-match": match})))
	}
	for label, headers := range map[string]amqp.Table{
		"complete": {"flag": true, "count": int16(3), "name": "n", "none": "present", "more": "ignored"},
		"one":      {"flag": false, "count": int8(3)},
		"other":    {"flag": false, "count": "3", "name": "N"},
	} {
		publish(channel, exchange, "", amqp.Publishing{Headers: headers, Body: []byte(label)})
	}
	equal("all", drained(channel, queues["all"]), []string{"complete"})
	some := drained(channel, queues["any"])
	if len(some) != 2 || some[0] == "other" || some[1] == "other" {
		fail("any: got %v", some)
	}
}

// What is bound to nothing goes to the alternate, and its alternate, and around no circle (AE-01, AE-02, AE-04).
func exchangeAlternates(s *scene) {
	channel := s.channel(0)
	last := s.exchangeName()
	middle := s.exchange(channel, "direct", amqp.Table{"alternate-exchange": last})
	first := s.exchange(channel, "direct", amqp.Table{"alternate-exchange": middle})
	must(channel.ExchangeDeclare(last, "direct", true, false, false, false, amqp.Table{"alternate-exchange": first}))
	queue := s.queue(channel, quorum)
	must(channel.QueueBind(queue, "deep", last, false, nil))
	returns := channel.NotifyReturn(make(chan amqp.Return, 2))
	for _, key := range []string{"deep", "nowhere"} {
		confirmed(ok(channel.PublishWithDeferredConfirm(first, key, true, false, text(key))))
	}
	equal("returned", within("a return", returns).RoutingKey, "nowhere")
	equal("messages", drained(channel, queue), []string{"deep"})
}

// Exchanges bound to exchanges; deleting one takes its bindings with it (BND-06, BND-07, EXC-08).
func exchangeToExchange(s *scene) {
	channel := s.channel(0)
	source, middle := s.exchange(channel, "fanout", nil), s.exchange(channel, "direct", nil)
	queue := s.queue(channel, quorum)
	must(channel.ExchangeBind(middle, "", source, false, nil))
	must(channel.QueueBind(queue, "k", middle, false, nil))
	publish(channel, source, "k", text("1"))
	refused(406, fmt.Sprintf("PRECONDITION_FAILED - exchange '%s' in vhost '/' in use", source),
		s.channel(0).ExchangeDelete(source, true, false))
	must(channel.ExchangeDelete(middle, false, false))
	must(channel.ExchangeDelete(middle, false, false)) // missing: fine (EXC-07)
	publish(channel, source, "k", text("2"))
	must(channel.ExchangeDelete(source, true, false))
	equal("messages", drained(channel, queue), []string{"1"})
}

// Missing, reserved, unknown, inequivalent (EXC-02, 03, 04, 06, BND-02).
func exchangeRefusals(s *scene) {
	missing, declared, queue := s.exchangeName(), s.exchange(s.channel(0), "topic", nil), s.queue(s.channel(0), quorum)
	notFound := fmt.Sprintf("NOT_FOUND - no exchange '%s' in vhost '/'", missing)
	refused(404, notFound, s.channel(0).ExchangeDeclarePassive(missing, "direct", true, false, false, false, nil))
	refused(404, notFound, s.channel(0).QueueBind(queue, "k", missing, false, nil))
	refused(404, notFound, s.channel(0).ExchangeBind(declared, "k", missing, false, nil))
	refused(403, fmt.Sprintf("ACCESS_REFUSED - exchange name 'amq.%s' contains reserved prefix 'amq.*'", runID),
		s.channel(0).ExchangeDeclare("amq."+runID, "direct", true, false, false, false, nil))
	refused(406, "PRECONDITION_FAILED - unknown exchange type 'sideways'",
		s.channel(0).ExchangeDeclare(missing, "sideways", true, false, false, false, nil))
	inequivalent := "PRECONDITION_FAILED - inequivalent arg '%s' for exchange '%s' in vhost '/': " +
		"received '%s' but current is '%s'"
	refused(406, fmt.Sprintf(inequivalent, "internal", declared, "true", "false"),
		s.channel(0).ExchangeDeclare(declared, "topic", true, false, true, false, nil))
	refused(406, fmt.Sprintf(inequivalent, "durable", declared, "false", "true"),
		s.channel(0).ExchangeDeclare(declared, "topic", false, false, false, false, nil))
}

// --- D. queues -----------------------------------------------------------------------------------------------

// declare-ok counts ready messages and consumers, on either type (QUE-01).
func queueDeclareCounts(s *scene) {
	channel := s.channel(0)
	for _, arguments := range both {
		name := s.name()
		declare := func() amqp.Queue { return ok(channel.QueueDeclare(name, true, false, false, false, arguments)) }
		equal("new", declare(), amqp.Queue{Name: name})
		send(channel, name, numbers(5)...)
		must(channel.Qos(2, 0, false))
		consume(channel, name, "", false).wait(2)
		equal("used", declare(), amqp.Queue{Name: name, Messages: 3, Consumers: 1})
	}
}

// A server-named queue, found by its name and by the empty one (QUE-06, CHN-13).
func queueServerNamed(s *scene) {
	channel := s.channel(0)
	queue := ok(channel.QueueDeclare("", false, true, true, false, nil)).Name
	if !regexp.MustCompile(`^amq\.gen-[A-Za-z0-9_-]{22}$`).MatchString(queue) {
		fail("name %q", queue)
	}
	send(channel, queue, "m")
	equal("messages by the empty name", drained(channel, ""), []string{"m"})
	_, err := s.channel(0).QueuePurge("", false)
	refused(404, "NOT_FOUND - no previously declared queue", err)
}

// Missing, reserved, and what a quorum queue cannot be (QUE-07, 08, 09, 12).
func queueRefusals(s *scene) {
	name := s.name()
	declare := func(name string, durable, autoDelete, exclusive bool) error {
		_, err := s.channel(0).QueueDeclare(name, durable, autoDelete, exclusive, false, quorum)
		return err
	}
	_, err := passive(s.channel(0), name)
	refused(404, fmt.Sprintf("NOT_FOUND - no queue '%s' in vhost '/'", name), err)
	refused(403, fmt.Sprintf("ACCESS_REFUSED - queue name 'amq.%s' contains reserved prefix 'amq.*'", runID),
		declare("amq."+runID, true, false, false))
	refused(406, "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue",
		declare("", true, false, false))
	invalid := "PRECONDITION_FAILED - invalid property '%s' for queue '%s' in vhost '/'"
	refused(406, fmt.Sprintf(invalid, "auto-delete", name), declare(name, true, true, false))
	refused(406, fmt.Sprintf(invalid, "exclusive-owner", name), declare(name, true, false, true))
	refused(406, fmt.Sprintf(invalid, "non-durable", name), declare(name, false, false, false))
}

// Inequivalent declares with Go's types; integers of another width are equal (EQV-01 to 06).
func queueRedeclareInequivalentRefused(s *scene) {
	channel := s.channel(0)
	limit := func(value any) amqp.Table { return with(quorum, amqp.Table{"x-max-length": value}) }
	queue := s.queue(channel, limit(int64(60000)))
	for _, same := range []any{int32(60000), uint16(60000), uint32(60000), int64(60000)} {
		ok(channel.QueueDeclare(queue, true, false, false, false, limit(same)))
	}
	overflow := with(limit(int64(60000)), amqp.Table{"x-overflow": "reject-publish"})
	for _, each := range []struct {
		argument, text string
		durable        bool
		arguments      amqp.Table
	}{
		{"x-max-length", "received '70000' but current is '60000'", true, limit(int64(70000))},
		{"x-max-length", "received none but current is the value '60000' of type 'long'", true, quorum},
		{
			"x-overflow", "received the value 'reject-publish' of type 'longstr' but current is none", true, overflow,
		},
		{
			"x-queue-type", "received 'classic' but current is 'quorum'", true, amqp.Table{"x-max-length": int64(60000)},
		},
		{"durable", "received 'false' but current is 'true'", false, limit(int64(60000))},
	} {
		_, err := s.channel(0).QueueDeclare(queue, each.durable, false, false, false, each.arguments)
		refused(406, fmt.Sprintf("PRECONDITION_FAILED - inequivalent arg '%s' for queue '%s' in vhost '/': %s",
			each.argument, queue, each.text), err)
	}
	equal("counts afterwards", counts(channel, queue), [2]int{0, 0})
}

// 405 on any node for other connections; free once its own is closed (EXQ-01, EXQ-02, CONN-27).
func queueExclusiveLocked(s *scene) {
	owner := s.connection(0)
	queue := ok(ok(owner.Channel()).QueueDeclare(s.name(), false, false, true, false, nil)).Name
	s.seenOn(1, queue)
	locked := fmt.Sprintf("RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '%s' in vhost '/'. "+
		"It could be originally declared on another connection or the exclusive property value does not match that of "+
		"the original declaration.", queue)
	_, err := passive(s.channel(1), queue)
	refused(405, locked, err)
	_, _, err = s.channel(1).Get(queue, true)
	refused(405, locked, err)
	_, err = s.channel(1).Consume(queue, "", false, false, false, false, nil)
	refused(405, locked, err)
	_, err = s.channel(1).QueuePurge(queue, false)
	refused(405, locked, err)
	_, err = s.channel(1).QueueDelete(queue, false, false, false)
	refused(405, locked, err)
	refused(405, locked, s.channel(1).QueueBind(queue, "k", "amq.direct", false, nil))
	must(owner.Close())
	ok(s.channel(0).QueueDeclare(queue, false, false, true, false, nil))
}

// An auto-delete queue goes when its last consumer's connection ends (EXQ-05).
func queueAutoDelete(s *scene) {
	channel := s.channel(0)
	queue := ok(channel.QueueDeclare(s.name(), true, true, false, false, classic)).Name
	consumer := s.connection(0)
	send(channel, queue, "m")
	consume(ok(consumer.Channel()), queue, "", false).wait(1)
	must(consumer.Close())
	eventually("the queue gone", func() bool {
		_, err := passive(s.channel(0), queue)
		var closed *amqp.Error
		return errors.As(err, &closed) && closed.Code == amqp.NotFound
	})
}

// Purge and delete count ready messages; conditions on a classic queue (DEL-01, DEL-02, DEL-07).
func queuePurgeAndDelete(s *scene) {
	channel := s.channel(0)
	for _, arguments := range both {
		queue := s.queue(channel, arguments)
		send(channel, queue, numbers(12)...)
		get(channel, queue, false)
		equal("purged", ok(channel.QueuePurge(queue, false)), 11)
		send(channel, queue, numbers(4)...)
		equal("deleted", ok(channel.QueueDelete(queue, false, false, false)), 4)
	}
	queue := s.queue(channel, classic)
	send(channel, queue, "m")
	_, err := s.channel(0).QueueDelete(queue, false, true, false)
	refused(406, fmt.Sprintf("PRECONDITION_FAILED - queue '%s' in vhost '/' not empty", queue), err)
	consume(channel, queue, "", true).wait(1)
	_, err = s.channel(0).QueueDelete(queue, true, false, false)
	refused(406, fmt.Sprintf("PRECONDITION_FAILED - queue '%s' in vhost '/' in use", queue), err)
}

// --- E. publishing -------------------------------------------------------------------------------------------

// A thousand in flight to a queue that was declared on another node: all acked, in order (CNF-02, PUB-10).
func confirmsThousandInFlight(s *scene) {
	for _, arguments := range both {
		owner := s.channel(0)
		queue := s.queue(owner, arguments)
		s.seenOn(1, queue)
		channel := s.channel(1)
		confirms := channel.NotifyPublish(make(chan amqp.Confirmation, 1000))
		send(channel, queue, numbers(1000)...)
		for tag := uint64(1); tag <= 1000; tag++ {
			equal("confirm", within("a confirm", confirms), amqp.Confirmation{DeliveryTag: tag, Ack: true})
		}
		eventually("all ready", func() bool { return counts(owner, queue) == [2]int{1000, 0} })
		equal("order", drained(owner, queue), numbers(1000))
	}
}

// Unroutable and mandatory: basic.return 312, then the ack; both in the order of publishing (PUB-04, PUB-05).
func publishMandatoryReturnedBeforeItsConfirm(s *scene) {
	channel := s.channel(0)
	missing := s.name()
	// Unbuffered: the client reads on only when an event is taken, so the order seen is the order sent.
	returns, confirms := channel.NotifyReturn(make(chan amqp.Return)), channel.NotifyPublish(make(chan amqp.Confirmation))
	events := make(chan string)
	go func() {
		for range 6 {
			select {
			case back := <-returns:
				events <- fmt.Sprintf("%d %s %q %s %s", back.ReplyCode, back.ReplyText, back.Exchange, back.RoutingKey, back.Body)
			case confirm := <-confirms:
				events <- fmt.Sprintf("ack %v", confirm.Ack)
			}
		}
	}()
	for _, body := range numbers(3) {
		must(channel.PublishWithContext(context.Background(), "", missing, true, false, text(body)))
		equal("return", within("basic.return", events), fmt.Sprintf(`312 NO_ROUTE "" %s %s`, missing, body))
		equal("confirm", within("the confirm", events), "ack true")
	}
}

// CC and BCC are further keys, one copy a queue (RTE-09, PRP-07, PRP-08).
func publishCcAndBcc(s *scene) {
	channel := s.channel(0)
	main, copied, blind := s.queue(channel, quorum), s.queue(channel, classic), s.queue(channel, quorum)
	headers := amqp.Table{"CC": []any{copied, main}, "BCC": []any{blind, copied}, "other": "kept"}
	publish(channel, "", main, amqp.Publishing{Headers: headers, Body: []byte("m")})
	for _, queue := range []string{main, copied, blind} {
		message := get(channel, queue, true)
		equal("headers", message.Headers, amqp.Table{"CC": []any{copied, main}, "other": "kept"})
		equal("key and left", []any{message.RoutingKey, message.MessageCount}, []any{main, uint32(0)})
	}
}

// A missing exchange, a wrong user and immediate (PUB-01, PRP-06).
func publishRefusals(s *scene) {
	missing := s.exchangeName()
	closing := func(exchange string, immediate bool, message amqp.Publishing) error {
		channel := s.channel(0)
		closed := channel.NotifyClose(make(chan *amqp.Error, 1))
		must(channel.PublishWithContext(context.Background(), exchange, "k", false, immediate, message))
		return within("channel closed", closed)
	}
	refused(404, fmt.Sprintf("NOT_FOUND - no exchange '%s' in vhost '/'", missing), closing(missing, false, text("m")))
	refused(406, "PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'",
		closing("", false, amqp.Publishing{UserId: "bob"}))
	refused(540, "NOT_IMPLEMENTED - immediate=true", closing("", true, text("m")))
}

// All properties and field types of amqp091-go come back, on both types of queue (PRP-01, FRM-14, FRM-15).
func propertiesAndHeadersKept(s *scene) {
	moment := time.Unix(1795230245, 0)
	sent := amqp.Publishing{
		Headers: amqp.Table{
			"bool": true, "byte": byte(255), "int8": int8(-128), "int16": int16(-32768), "uint16": uint16(65535),
			"int32": int32(-2147483648), "uint32": uint32(4294967295), "int64": int64(-9223372036854775808),
			"float32": float32(0.5), "float64": 3.141592653589793, "decimal": amqp.Decimal{Scale: 3, Value: -3141},
			"string": "grüße ☃", "empty": "", "bytes": []byte{0, 255}, "time": moment, "void": nil,
			"array": []any{int32(1), "two", []any(nil), amqp.Table{}, nil, []any{[]any{moment}}},
			"table": amqp.Table{"empty": amqp.Table{}, "deeper": amqp.Table{"array": []any{amqp.Table{"k": int8(1)}}}},
		},
		ContentType: "text/plain", ContentEncoding: "utf-8", DeliveryMode: 2, Priority: 9, CorrelationId: "c",
		ReplyTo: "r", Expiration: "600000", MessageId: "m", Timestamp: moment, Type: "t", UserId: "guest", AppId: "a",
		Body: []byte("body"),
	}
	channel := s.channel(0)
	for _, arguments := range both {
		queue := s.queue(channel, arguments)
		publish(channel, "", queue, sent)
		equal("message", message(get(channel, queue, true)), sent)
		publish(channel, "", queue, amqp.Publishing{Body: []byte("bare")})
		equal("bare message", message(get(channel, queue, true)), amqp.Publishing{Body: []byte("bare")})
	}
}

// message is a delivery as it would have been published.
func message(d amqp.Delivery) amqp.Publishing {
	return amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration,
		MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, UserId: d.UserId, AppId: d.AppId, Body: d.Body,
	}
}

// 0 and 1 bytes, the sizes around one and two frames, and 5 MiB (FRM-10).
func bodiesOfEverySize(s *scene) {
	channel := s.channel(0)
	queue := s.queue(channel, quorum)
	payload := frameMax - 8
	for _, size := range []int{0, 1, payload - 1, payload, payload + 1, 2 * payload, 2*payload + 1, 5 << 20} {
		body := random(size)
		publish(channel, "", queue, amqp.Publishing{Body: body})
		if got := get(channel, queue, true).Body; !bytes.Equal(got, body) {
			fail("%d bytes came back as %d, or changed", size, len(got))
		}
	}
}

// --- F. consuming, B. acknowledging --------------------------------------------------------------------------

// get-ok counts what is left; get-empty (GET-01, PUB-11).
func getAndGetEmpty(s *scene) {
	channel := s.channel(0)
	queue := s.queue(channel, quorum)
	send(channel, queue, "1", "2")
	for _, left := range []uint32{1, 0} {
		message, found, err := channel.Get(queue, false)
		must(err)
		equal("get-ok", []any{found, message.MessageCount, message.DeliveryTag}, []any{true, left, uint64(2 - left)})
	}
	_, found, err := channel.Get(queue, false)
	must(err)
	equal("found", found, false)
}

// With prefetch 5 exactly five are out; each ack brings exactly one more (QOS-02, QOS-09).
func prefetchIsExact(s *scene) {
	for _, arguments := range both {
		channel := s.channel(0)
		queue := s.queue(channel, arguments)
		send(channel, queue, numbers(30)...)
		must(channel.Qos(5, 0, false))
		inbox := consume(channel, queue, "", false)
		for out := 5; out <= 30; out++ {
			message := inbox.wait(out)[out-5]
			equal("counts", counts(channel, queue), [2]int{30 - out, 1})
			must(message.Ack(false))
		}
		equal("order", bodies(inbox.messages), numbers(30))
	}
}

// basic.qos with global is one limit for the consumers of a channel (QOS-06, Q-12).
func prefetchGlobalOnClassic(s *scene) {
	prefetchGlobal(s, classic)
}

// The same on a quorum queue.
func prefetchGlobalOnQuorum(s *scene) {
	s.notOnThePeer("Q-12: RabbitMQ refuses to consume from quorum queues then (QOS-07)")
	prefetchGlobal(s, quorum)
}

func prefetchGlobal(s *scene, arguments amqp.Table) {
	channel := s.channel(0)
	queue := s.queue(channel, arguments)
	send(channel, queue, numbers(10)...)
	must(channel.Qos(3, 0, true))
	first, second := consume(channel, queue, "", false), consume(channel, queue, "", false)
	take := func() (message amqp.Delivery) {
		select {
		case message = <-first.deliveries:
		case message = <-second.deliveries:
		case <-time.After(waitTime):
			fail("no delivery")
		}
		return message
	}
	take()
	take()
	third := take()
	// What the other consumer was assigned before the limit was used up goes back first.
	eventually("the rest is ready", func() bool { return counts(channel, queue) == [2]int{7, 2} })
	nothing := func() {
		select {
		case message := <-first.deliveries:
			fail("beyond the limit: %s", message.Body)
		case message := <-second.deliveries:
			fail("beyond the limit: %s", message.Body)
		default:
		}
	}
	nothing()
	must(third.Ack(false))
	take()
	eventually("one more is out", func() bool { return counts(channel, queue) == [2]int{6, 2} })
	nothing()
}

// Consumers with room get messages in turn, each message goes to one (CON-08).
func consumersTakeTurns(s *scene) {
	for _, arguments := range both {
		channel := s.channel(0)
		queue := s.queue(channel, arguments)
		first, second := consume(s.channel(0), queue, "", false), consume(s.channel(0), queue, "", false)
		for _, body := range numbers(20) {
			send(channel, queue, body)
		}
		equal("ready and consumers", counts(channel, queue), [2]int{0, 2})
		all := append(bodies(first.wait(10)), bodies(second.wait(10))...)
		seen := map[string]bool{}
		for _, body := range all {
			seen[body] = true
		}
		equal("different messages", len(seen), 20)
	}
}

// ack and nack of several, reject of one (ACK-02, ACK-03, ACK-06).
func ackNackAndReject(s *scene) {
	for _, arguments := range both {
		channel := s.channel(0)
		queue := s.queue(channel, arguments)
		send(channel, queue, numbers(6)...)
		inbox := consume(channel, queue, "", false)
		messages := inbox.wait(6)
		must(messages[1].Ack(true))
		must(messages[3].Nack(true, true))
		inbox.wait(8)
		must(messages[4].Reject(false))
		must(messages[5].Reject(true))
		again := inbox.wait(9)[6:]
		equal("returned", bodies(again), []string{"2", "3", "5"})
		for _, message := range again {
			equal("redelivered", message.Redelivered, true)
		}
		must(channel.Ack(0, true))
		must(channel.Close())
		observer := s.channel(0)
		eventually("no consumer", func() bool { return counts(observer, queue)[1] == 0 })
		equal("left", drained(observer, queue), []string{})
	}
}

// Redeliveries of a quorum queue are counted in headers, of type int64, over the client's own (Q-32, CON-20, CON-22).
func deliveryCountHeaders(s *scene) {
	channel := s.channel(0)
	queue := s.queue(channel, quorum)
	headers := amqp.Table{"x-delivery-count": int64(77), "mine": "kept"}
	publish(channel, "", queue, amqp.Publishing{Headers: headers, Body: []byte("m")})
	inbox := consume(channel, queue, "", false)
	for returned := range 5 {
		message := inbox.wait(returned + 1)[returned]
		expected := headers
		if returned > 0 {
			counted := amqp.Table{"x-delivery-count": int64(returned), "x-acquired-count": int64(returned)}
			if s.peer { // CON-21: up to 4.2 there is one header only
				delete(counted, "x-acquired-count")
			}
			expected = with(headers, counted)
		}
		equal("headers", message.Headers, expected)
		must(message.Reject(true))
	}
}

// basic.recover gives back what is unacked; requeue=false is 540 (ACK-09).
func recoverRedelivers(s *scene) {
	channel := s.channel(0)
	queue := s.queue(channel, classic)
	send(channel, queue, "1", "2")
	inbox := consume(channel, queue, "", false)
	inbox.wait(2)
	must(channel.Recover(true))
	equal("recovered", bodies(inbox.wait(4)), []string{"1", "2", "1", "2"})
	refused(540, "NOT_IMPLEMENTED - requeue=false", channel.Recover(false))
}

// Cancelling an unknown tag is fine; what a cancelled consumer holds can be settled (CON-09, ACK-10).
func cancelThenSettle(s *scene) {
	channel := s.channel(0)
	queue := s.queue(channel, quorum)
	send(channel, queue, "1", "2", "3")
	must(channel.Qos(2, 0, false))
	message := consume(channel, queue, "mine", false).wait(2)[0]
	must(channel.Cancel("mine", false))
	must(channel.Cancel("never there", false))
	must(message.Ack(false))
	equal("ready", counts(channel, queue)[0], 1)
	must(channel.Close())
	observer := s.channel(0)
	eventually("one returned", func() bool { return counts(observer, queue) == [2]int{2, 0} })
	equal("left", drained(observer, queue), []string{"2", "3"})
}

// The broker cancels the consumers of a deleted queue, wherever they are (CON-13, ACK-11).
func cancelNotificationWhenTheQueueIsDeleted(s *scene) {
	for _, arguments := range both {
		queue := s.queue(s.channel(0), arguments)
		s.seenOn(1, queue)
		s.seenOn(2, queue)
		channel := s.channel(2)
		cancelled := channel.NotifyCancel(make(chan string, 1))
		send(channel, queue, "m")
		message := consume(channel, queue, "mine", false).wait(1)[0]
		ok(s.channel(1).QueueDelete(queue, false, false, false))
		equal("cancelled", within("basic.cancel", cancelled), "mine")
		must(message.Ack(false)) // accepted silently
		ok(channel.QueueDeclare("", false, false, true, false, nil))
	}
}

// A consumer tag in use on the channel is 530 and closes the connection (CON-01).
func consumerTagReuseRefused(s *scene) {
	connection := s.connection(0)
	channel := confirming(connection)
	queue := s.queue(channel, quorum)
	consume(channel, queue, "mine", false)
	consume(confirming(connection), queue, "mine", false) // tags are per channel
	closed := connection.NotifyClose(make(chan *amqp.Error, 1))
	_, _ = channel.Consume(queue, "mine", false, false, false, false, nil)
	refused(530, "NOT_ALLOWED - attempt to reuse consumer tag 'mine'", within("connection closed", closed))
}

// 406 closes the channel; its unacked messages return, the connection goes on (ACK-04, CHN-06).
func unknownDeliveryTagClosesTheChannelOnly(s *scene) {
	connection := s.connection(0)
	broken, other := confirming(connection), confirming(connection)
	queue := s.queue(other, quorum)
	send(other, queue, "1", "2")
	consume(broken, queue, "", false).wait(2)
	closed := broken.NotifyClose(make(chan *amqp.Error, 1))
	must(broken.Reject(3, true))
	refused(406, "PRECONDITION_FAILED - unknown delivery tag 3", within("channel closed", closed))
	for _, body := range []string{"1", "2"} {
		message := get(other, queue, true)
		equal("returned", []any{string(message.Body), message.Redelivered}, []any{body, true})
	}
}

// Consuming and getting from what is not there is 404 (CON-02, GET-02).
func consumeFromMissingRefused(s *scene) {
	name := s.name()
	text := fmt.Sprintf("NOT_FOUND - no queue '%s' in vhost '/'", name)
	_, err := s.channel(0).Consume(name, "", false, false, false, false, nil)
	refused(404, text, err)
	_, _, err = s.channel(0).Get(name, true)
	refused(404, text, err)
}

// --- across nodes --------------------------------------------------------------------------------------------

// Declared on one node, published on the next, consumed on the third while publishing goes on. What is acked is gone,
// what is not returns. The late ones are only delivered when all acks have arrived: a channel that closes at once after
// its acks may lose some of them on RabbitMQ.
func nodesDeclarePublishConsume(s *scene) {
	const count, prefetch = 2000, 100
	for _, arguments := range both {
		owner := s.channel(0)
		queue := s.queue(owner, arguments)
		s.seenOn(1, queue)
		s.seenOn(2, queue)
		consumer, publisher := s.channel(2), s.channel(1)
		must(consumer.Qos(prefetch, 0, false))
		inbox := consume(consumer, queue, "", false)
		published := make(chan any, 1)
		go func() {
			defer func() { published <- recover() }()
			send(publisher, queue, numbers(count)...)
		}()
		for n := range count {
			must(inbox.wait(n + 1)[n].Ack(false))
		}
		equal("publisher's failure", within("the confirms", published), nil)
		equal("order", bodies(inbox.messages), numbers(count))
		send(publisher, queue, numbers(prefetch)...)
		equal("late ones", bodies(inbox.wait(count + prefetch)[count:]), numbers(prefetch))
		must(consumer.Close())
		eventually("the late ones returned", func() bool { return counts(owner, queue) == [2]int{prefetch, 0} })
		equal("returned", drained(owner, queue), numbers(prefetch))
	}
}

// A server on one node replies into the exclusive queue of a client on another (EXQ-04).
func nodesRpcIntoAnExclusiveQueue(s *scene) {
	client, server := s.channel(1), s.channel(2)
	requests := s.queue(server, quorum)
	s.seenOn(1, requests)
	replies := ok(client.QueueDeclare("", false, false, true, false, nil)).Name
	s.seenOn(2, replies)
	calls, answers := consume(server, requests, "", false), consume(client, replies, "", true)
	returns := server.NotifyReturn(make(chan amqp.Return, 1))
	for n, body := range numbers(20) {
		publish(client, "", requests, amqp.Publishing{ReplyTo: replies, CorrelationId: body, Body: []byte(body)})
		call := calls.wait(n + 1)[n]
		answer := amqp.Publishing{CorrelationId: call.CorrelationId, Body: append([]byte("answer "), call.Body...)}
		eventually("the reply routed", func() bool { // this node may not know the client's queue yet (BND-11)
			confirmed(ok(server.PublishWithDeferredConfirm("", call.ReplyTo, true, false, answer)))
			select {
			case <-returns:
				return false
			default:
				return true
			}
		})
		must(call.Ack(false))
		reply := answers.wait(n + 1)[n]
		equal("reply", []string{reply.CorrelationId, string(reply.Body)}, []string{body, "answer " + body})
	}
}

// --- running -------------------------------------------------------------------------------------------------

var checks = []struct {
	name string
	run  func(*scene)
}{
	{"connect_server_properties", connectServerProperties},
	{"connect_tune_defaults", connectTuneDefaults},
	{"connect_tune_lower", connectTuneLower},
	{"connect_amqplain", connectAmqplain},
	{"connect_bad_password_dropped", connectBadPasswordDropped},
	{"connect_unknown_vhost_refused", connectUnknownVhostRefused},
	{"heartbeats_keep_an_idle_connection", heartbeatsKeepAnIdleConnection},
	{"heartbeats_missing_end_the_connection", heartbeatsMissingEndTheConnection},
	{"lost_connection_returns_and_unlocks", lostConnectionReturnsAndUnlocks},
	{"update_secret", updateSecret},
	{"channel_flow", channelFlow},
	{"prefetch_size_refused", prefetchSizeRefused},
	{"nowait_still_refuses", nowaitStillRefuses},
	{"channels_at_once", channelsAtOnce},
	{"exchange_direct", exchangeDirect},
	{"exchange_fanout", exchangeFanout},
	{"exchange_topic", exchangeTopic},
	{"exchange_headers", exchangeHeaders},
	{"exchange_alternates", exchangeAlternates},
	{"exchange_to_exchange", exchangeToExchange},
	{"exchange_refusals", exchangeRefusals},
	{"queue_declare_counts", queueDeclareCounts},
	{"queue_server_named", queueServerNamed},
	{"queue_refusals", queueRefusals},
	{"queue_redeclare_inequivalent_refused", queueRedeclareInequivalentRefused},
	{"queue_exclusive_locked", queueExclusiveLocked},
	{"queue_auto_delete", queueAutoDelete},
	{"queue_purge_and_delete", queuePurgeAndDelete},
	{"confirms_thousand_in_flight", confirmsThousandInFlight},
	{"publish_mandatory_returned_before_its_confirm", publishMandatoryReturnedBeforeItsConfirm},
	{"publish_cc_and_bcc", publishCcAndBcc},
	{"publish_refusals", publishRefusals},
	{"properties_and_headers_kept", propertiesAndHeadersKept},
	{"bodies_of_every_size", bodiesOfEverySize},
	{"get_and_get_empty", getAndGetEmpty},
	{"prefetch_is_exact", prefetchIsExact},
	{"prefetch_global_on_classic", prefetchGlobalOnClassic},
	{"prefetch_global_on_quorum", prefetchGlobalOnQuorum},
	{"consumers_take_turns", consumersTakeTurns},
	{"ack_nack_and_reject", ackNackAndReject},
	{"delivery_count_headers", deliveryCountHeaders},
	{"recover_redelivers", recoverRedelivers},
	{"cancel_then_settle", cancelThenSettle},
	{"cancel_notification_when_the_queue_is_deleted", cancelNotificationWhenTheQueueIsDeleted},
	{"consumer_tag_reuse_refused", consumerTagReuseRefused},
	{"unknown_delivery_tag_closes_the_channel_only", unknownDeliveryTagClosesTheChannelOnly},
	{"consume_from_missing_refused", consumeFromMissingRefused},
	{"nodes_declare_publish_consume", nodesDeclarePublishConsume},
	{"nodes_rpc_into_an_exclusive_queue", nodesRpcIntoAnExclusiveQueue},
}

// attempt is what ended the step: nil, a failure or skipped.
func attempt(step func()) (end any) {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		step()
	}()
	select {
	case end = <-done:
	case <-time.After(checkTime):
		end = failure{fmt.Sprintf("not within %v", checkTime)}
	}
	return end
}

func main() {
	peer := flag.Bool("peer", false, "the broker is RabbitMQ 4.0")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: amqp091 [-peer] HOST:PORT [HOST:PORT ...]")
		os.Exit(2)
	}
	passed, failed := 0, 0
	for _, check := range checks {
		s := &scene{addresses: flag.Args(), peer: *peer}
		end := attempt(func() { check.run(s) })
		if ending := attempt(s.end); end == nil {
			end = ending
		}
		switch why := end.(type) {
		case nil:
			passed++
			fmt.Println("ok", check.name)
		case skipped:
			fmt.Printf("skip %s: %s\n", check.name, why.why)
		case failure:
			failed++
			fmt.Printf("not ok %s: %s\n", check.name, strings.ReplaceAll(why.why, "\n", " "))
		default: // a mistake in the check itself
			failed++
			fmt.Printf("not ok %s: %v\n", check.name, why)
		}
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
