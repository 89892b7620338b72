//! The end of a connection: which side closes, what is sent, and how long the socket stays open
//! (CONN-24 to CONN-29).

use crate::codec::{
    cold::connection,
    frame::{Frame, FrameError, Kind},
    method::{Method, MethodId},
};
use quorate_types::{Exception, ReplyCode, ShortString};

/// How long a socket stays open after an end that the client need not answer, ms.
pub(crate) const SILENCE_MS: u64 = 3000;

/// How long close-ok is awaited at most, ms (CONN-26).
const CLOSE_OK_MS_MAX: u64 = 30_000;

/// A fault of the client or the broker, with the method that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) exception: Exception,
    pub(crate) id: MethodId,
}

impl Fault {
    pub(crate) fn new(code: ReplyCode, explanation: impl Into<String>, id: MethodId) -> Self {
        Self { exception: Exception::new(code, explanation), id }
    }

    pub(crate) fn of(exception: Exception, id: MethodId) -> Self {
        Self { exception, id }
    }
}

/// What the server waits for after it has ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linger {
    /// Close-ok, or the time of CONN-26.
    CloseOk,
    /// The end of the stream, or [`SILENCE_MS`]: no more frames can be parsed.
    Silence,
}

/// The end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client has closed: close-ok is sent once the broker has closed the connection (CONN-27).
    Client,
    /// The server closes.
    Server {
        /// The close that is sent.
        close: Box<connection::Close>,
        /// What is awaited afterwards.
        linger: Linger,
    },
    /// Nothing is sent; the socket is closed after [`SILENCE_MS`] (CONN-10, 12, 14, 23).
    Silent,
}

impl Ending {
    pub(crate) fn fault(fault: &Fault) -> Self {
        Self::Server { close: Box::new(close_method(fault)), linger: Linger::CloseOk }
    }

    /// The end after which the stream cannot be parsed any more (FRM-01 to FRM-03).
    pub(crate) fn frame_error(error: &FrameError) -> Self {
        let fault = Fault::new(ReplyCode::FrameError, error.to_string(), MethodId::NONE);
        Self::Server { close: Box::new(close_method(&fault)), linger: Linger::Silence }
    }
}

/// Longest time that the socket stays open, ms.
pub(crate) fn linger_ms(linger: Linger, heartbeat_s: u16) -> u64 {
    match linger {
        Linger::Silence => SILENCE_MS,
        Linger::CloseOk if heartbeat_s == 0 => CLOSE_OK_MS_MAX,
        Linger::CloseOk => (u64::from(heartbeat_s) * 1000).min(CLOSE_OK_MS_MAX),
    }
}

/// A frame that arrives after the server's connection.close (CONN-26, CONN-28).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhileClosing {
    /// A frame that is discarded.
    Ignored,
    /// The client closes at the same time: close-ok is sent.
    Crossing,
    /// The client has sent close-ok.
    Agreed,
}

pub(crate) fn while_closing(frame: &Frame) -> WhileClosing {
    if frame.channel != 0 || frame.kind != Kind::Method {
        return WhileClosing::Ignored;
    }
    match MethodId::peek(&frame.payload) {
        Some(connection::Close::ID) => WhileClosing::Crossing,
        Some(connection::CloseOk::ID) => WhileClosing::Agreed,
        Some(MethodId { .. }) | None => WhileClosing::Ignored,
    }
}

/// A reply text as a short string. An exception without an explanation has only its name as text
/// (FRM-11).
pub(crate) fn reply_text(exception: &Exception) -> ShortString {
    let text = if exception.explanation.is_empty() {
        exception.code.name().to_owned()
    } else {
        exception.reply_text()
    };
    ShortString::try_from(text).unwrap_or_default()
}

pub(crate) fn close_method(fault: &Fault) -> connection::Close {
    connection::Close {
        reply_code: fault.exception.code.number(),
        reply_text: reply_text(&fault.exception),
        class_id: fault.id.class,
        method_id: fault.id.method,
    }
}

/// Decodes the payload of a method frame; the fault names the error.
pub(crate) fn decode(frame: Frame) -> Result<Method, Fault> {
    Method::decode(frame.payload).map_err(|error| {
        let (exception, id) = error.exception();
        Fault { exception, id }
    })
}

/// Reads a frame on channel 0 as a method (FRM-04).
pub(crate) fn decode_control(frame: &Frame) -> Result<Method, Fault> {
    if frame.kind == Kind::Method { decode(frame.clone()) } else { Err(unexpected_frame(frame)) }
}

/// The fault for a frame whose kind is not allowed at this point (FRM-04, FRM-05).
pub(crate) fn unexpected_frame(frame: &Frame) -> Fault {
    let text = crate::codec::erlang::frame(frame.kind as u8, &frame.payload, "");
    Fault::new(ReplyCode::UnexpectedFrame, text, MethodId::NONE)
}

/// A heartbeat frame, which must be on channel 0 and empty (FRM-05).
pub(crate) fn check_heartbeat(frame: &Frame) -> Result<(), Fault> {
    if frame.channel != 0 {
        return Err(unexpected_frame(frame));
    }
    if !frame.payload.is_empty() {
        let text = crate::codec::erlang::frame(frame.kind as u8, &frame.payload, "unknown_frame");
        return Err(Fault::new(ReplyCode::FrameError, text, MethodId::NONE));
    }
    Ok(())
}

/// The fault for a connection method in the wrong state (CONN-23), or another method on channel 0
/// (FRM-13).
pub(crate) fn out_of_turn(state: &str, id: MethodId) -> Fault {
    let text = format!("unexpected method in connection state {state}");
    Fault::new(ReplyCode::ChannelError, text, id)
}
