//! From the first byte to connection.open (CONN-01 to CONN-23, Q-02, Q-03).

use crate::{
    codec::{
        PROTOCOL_HEADER,
        cold::{Cold, connection},
        frame::{FRAME_MAX_LEAST, Frame, Kind},
        method::{Method, MethodId},
    },
    connection::close::{
        Ending, Fault, Linger, check_heartbeat, close_method, decode_control, out_of_turn,
        unexpected_frame,
    },
    sasl::{self, Credentials, Passwordless},
};
use bytes::{Buf, Bytes, BytesMut};
use quorate_client::FrontSettings;
use quorate_types::{FieldTable, FieldValue, ReplyCode, ShortString};

/// Header of AMQP 0-9, accepted as the same protocol (CONN-01).
const HEADER_0_9: [u8; 8] = *b"AMQP\x01\x01\x00\x09";

/// The kind of the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstBytes {
    /// The header is incomplete.
    Missing,
    /// AMQP 0-9-1 begins.
    Accepted,
    /// Another protocol: answered with the header of AMQP 0-9-1, and closed.
    Refused,
}

/// Parses the protocol header, and removes it from the input.
pub(crate) fn protocol_header(input: &mut BytesMut) -> FirstBytes {
    let Some(&header) = input.first_chunk::<8>() else { return FirstBytes::Missing };
    input.advance(header.len());
    if header == PROTOCOL_HEADER || header == HEADER_0_9 {
        FirstBytes::Accepted
    } else {
        FirstBytes::Refused
    }
}

/// What was negotiated in tune-ok.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) channel_max: u16,
    pub(crate) frame_max: u32,
    pub(crate) heartbeat_s: u16,
}

/// Capabilities of the client that change what the broker sends (CONN-09).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) authentication_failure_close: bool,
    pub(crate) connection_blocked: bool,
    pub(crate) consumer_cancel_notify: bool,
}

impl Capabilities {
    pub(crate) fn of(client_properties: &FieldTable) -> Self {
        // A missing or mistyped table means none.
        let Some(FieldValue::Table(table)) = client_properties.get("capabilities") else {
            return Self::default();
        };
        let has = |name| matches!(table.get(name), Some(FieldValue::Bool(true)));
        Self {
            authentication_failure_close: has("authentication_failure_close"),
            connection_blocked: has("connection.blocked"),
            consumer_cancel_notify: has("consumer_cancel_notify"),
        }
    }
}

/// A client's request to open the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) user: ShortString,
    /// The mechanism by which the client has authenticated.
    pub(crate) mechanism: &'static str,
    pub(crate) vhost: ShortString,
    pub(crate) client_properties: FieldTable,
    pub(crate) limits: Limits,
}

/// A decision that the driver has to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Whether the credentials are right. Answered with [`Handshake::authenticated`].
    Credentials(Credentials),
    /// Whether the connection may be opened (CONN-20). The handshake is over.
    Open(Box<Opening>),
}

#[derive(Debug)]
enum State {
    StartOk,
    Authenticating {
        user: ShortString,
        mechanism: &'static str,
        client_properties: FieldTable,
    },
    TuneOk {
        user: ShortString,
        mechanism: &'static str,
        client_properties: FieldTable,
    },
    Open {
        user: ShortString,
        mechanism: &'static str,
        client_properties: FieldTable,
        limits: Limits,
    },
    Over,
}

/// The handshake after an accepted protocol header.
#[derive(Debug)]
pub(crate) struct Handshake {
    /// Limits that `connection.tune` offered.
    offer: Limits,
    /// The users of mechanisms without a password (Q-06, CONN-06).
    passwordless: Passwordless,
    state: State,
}

impl Handshake {
    /// Begins the handshake with connection.start. `external` is the user of the client's
    /// certificate.
    pub(crate) fn new(
        settings: &FrontSettings,
        external: Option<ShortString>,
        out: &mut BytesMut,
    ) -> Self {
        let passwordless = Passwordless { anonymous: settings.anonymous_user.clone(), external };
        let start = connection::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: settings.server_properties.clone(),
            mechanisms: Bytes::from_static(passwordless.offered().as_bytes()),
            locales: Bytes::from_static(b"en_US"),
        };
        Cold::from(start).put(out, 0);
        let offer = Limits {
            channel_max: settings.channel_max,
            frame_max: settings.frame_max,
            heartbeat_s: settings.amqp_heartbeat_s,
        };
        Self { offer, passwordless, state: State::StartOk }
    }

    /// Largest frame that is accepted: before tune-ok only the smallest size that can be
    /// negotiated.
    pub(crate) fn frame_max(&self) -> u32 {
        match &self.state {
            State::Open { limits, .. } => limits.frame_max,
            State::StartOk | State::Authenticating { .. } | State::TuneOk { .. } | State::Over => {
                FRAME_MAX_LEAST
            }
        }
    }

    /// Handles a frame.
    ///
    /// # Errors
    /// How the connection ends.
    pub(crate) fn frame(
        &mut self,
        frame: &Frame,
        out: &mut BytesMut,
    ) -> Result<Option<Question>, Ending> {
        if frame.kind == Kind::Heartbeat {
            check_heartbeat(frame).map_err(|fault| Ending::fault(&fault))?;
            return Ok(None);
        }
        if frame.channel != 0 {
            // Before connection.open only channel 0 is allowed (FRM-04).
            return Err(Ending::fault(&unexpected_frame(frame)));
        }
        let method = decode_control(frame).map_err(|fault| Ending::fault(&fault))?;
        self.method(method, out)
    }

    fn method(&mut self, method: Method, out: &mut BytesMut) -> Result<Option<Question>, Ending> {
        let id = method.id();
        let Method::Cold(cold) = method else { return Err(self.unexpected(id)) };
        let Cold::Connection(method) = *cold else { return Err(self.unexpected(id)) };
        match (std::mem::replace(&mut self.state, State::Over), method) {
            (State::StartOk, connection::Method::StartOk(start_ok)) => self.start_ok(start_ok),
            (
                State::TuneOk { user, mechanism, client_properties },
                connection::Method::TuneOk(tune_ok),
            ) => {
                let limits = negotiate(&self.offer, &tune_ok)
                    .map_err(|text| Ending::fault(&Fault::new(ReplyCode::NotAllowed, text, id)))?;
                self.state = State::Open { user, mechanism, client_properties, limits };
                Ok(None)
            }
            (
                State::Open { user, mechanism, client_properties, limits },
                connection::Method::Open(connection::Open { virtual_host: vhost, .. }),
            ) => {
                let opening = Opening { user, mechanism, vhost, client_properties, limits };
                Ok(Some(Question::Open(Box::new(opening))))
            }
            // A client may close before it has opened.
            (_, connection::Method::Close(_)) => {
                Cold::from(connection::CloseOk {}).put(out, 0);
                Err(Ending::Silent)
            }
            (state, _) => {
                self.state = state;
                Err(self.unexpected(id))
            }
        }
    }

    fn start_ok(&mut self, start_ok: connection::StartOk) -> Result<Option<Question>, Ending> {
        let mechanism = start_ok.mechanism.as_bytes();
        let found = sasl::credentials(mechanism, &start_ok.response, &self.passwordless);
        let credentials = found.map_err(|error| {
            tracing::info!(mechanism = %start_ok.mechanism, %error, "login refused");
            Ending::Silent
        })?;
        self.state = State::Authenticating {
            user: credentials.user.clone(),
            mechanism: credentials.mechanism,
            client_properties: start_ok.client_properties,
        };
        Ok(Some(Question::Credentials(credentials)))
    }

    /// Continues after the check of the credentials (CONN-13, CONN-14).
    ///
    /// # Errors
    /// How the connection ends if they are wrong.
    pub(crate) fn authenticated(&mut self, right: bool, out: &mut BytesMut) -> Result<(), Ending> {
        let State::Authenticating { user, mechanism, client_properties } =
            std::mem::replace(&mut self.state, State::Over)
        else {
            return Err(Ending::Silent);
        };
        if right {
            let Limits { channel_max, frame_max, heartbeat_s: heartbeat } = self.offer;
            Cold::from(connection::Tune { channel_max, frame_max, heartbeat }).put(out, 0);
            self.state = State::TuneOk { user, mechanism, client_properties };
            return Ok(());
        }
        if !Capabilities::of(&client_properties).authentication_failure_close {
            return Err(Ending::Silent);
        }
        let text = format!(
            "Login was refused using authentication mechanism {mechanism}. For details see the \
             broker logfile."
        );
        let fault = Fault::new(ReplyCode::AccessRefused, text, MethodId::NONE);
        let close = Box::new(close_method(&fault));
        Err(Ending::Server { close, linger: Linger::Silence })
    }

    /// The end after a method in the wrong state: silence before tune-ok, 504 afterwards (CONN-23).
    fn unexpected(&self, id: MethodId) -> Ending {
        match &self.state {
            State::Open { .. } => Ending::fault(&out_of_turn("opening", id)),
            State::StartOk | State::Authenticating { .. } | State::TuneOk { .. } | State::Over => {
                Ending::Silent
            }
        }
    }
}

/// Checks the client's tune-ok against the offer (CONN-17 to CONN-19, Q-03).
fn negotiate(offer: &Limits, asked: &connection::TuneOk) -> Result<Limits, String> {
    let frame_max = in_range("frame_max", asked.frame_max, FRAME_MAX_LEAST, offer.frame_max)?;
    let channel_max =
        in_range("channel_max", u32::from(asked.channel_max), 1, u32::from(offer.channel_max))?;
    Ok(Limits {
        frame_max,
        channel_max: u16::try_from(channel_max).unwrap_or(u16::MAX),
        heartbeat_s: asked.heartbeat,
    })
}

/// 0 means no limit: as an offer it accepts any value, as a request it exceeds any offer.
fn in_range(name: &str, asked: u32, least: u32, offered: u32) -> Result<u32, String> {
    let too_high = |asked: &str| {
        Err(format!(
            "negotiated {name} = {asked} is higher than the maximum allowed value ({offered})"
        ))
    };
    match (asked, offered) {
        (0, 0) => Ok(u32::MAX),
        (0, _) => too_high("0 (no limit)"),
        (asked, _) if asked < least => Err(format!(
            "negotiated {name} = {asked} is lower than the minimum allowed value ({least})"
        )),
        (asked, 0) => Ok(asked),
        (asked, offered) if asked > offered => too_high(&asked.to_string()),
        (asked, _) => Ok(asked),
    }
}
