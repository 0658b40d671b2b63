//! The loop on a terminal: looks and keys come in, pictures go out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libra_launch::interrupt;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::{Model, Order};
use super::source::Source;
use super::view::{Screen, draw};

/// Time after which keys and looks are read.
const TURN: Duration = Duration::from_millis(40);
/// Time after which a screen is drawn in any case: ages grow.
const REDRAW: Duration = Duration::from_millis(250);

/// Watches until a key or a signal ends it. However it ends, the terminal is as it was.
pub(crate) fn run(source: Source, model: Model, begun: Instant, interval: Duration) -> Result<()> {
    let ends = Arc::new(AtomicBool::new(false));
    interrupt::report_elsewhere();
    let [interrupted, terminated] = [ends.clone(), ends.clone()];
    interrupt::on_first(move || interrupted.store(true, Ordering::SeqCst));
    interrupt::on_terminate(move || terminated.store(true, Ordering::SeqCst));
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let ended = watch(&mut terminal, source, model, begun, interval, &ends);
    ratatui::restore();
    ended
}

/// Settings that keys change.
#[derive(Debug, Default, PartialEq, Eq)]
struct Keys {
    order: Order,
    shows_help: bool,
    quits: bool,
}

impl Keys {
    fn press(&mut self, key: KeyEvent) {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => self.quits = true,
            _ if self.shows_help => self.shows_help = false,
            KeyCode::Char('q') | KeyCode::Esc => self.quits = true,
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char('s') => {
                self.order = match self.order {
                    Order::Number => Order::Activity,
                    Order::Activity => Order::Number,
                };
            }
            _ => {}
        }
    }
}

fn watch(
    terminal: &mut DefaultTerminal,
    source: Source,
    mut model: Model,
    begun: Instant,
    interval: Duration,
    ends: &AtomicBool,
) -> Result<()> {
    let mut controller = source.name();
    let looks = source.looks(interval);
    let mut keys = Keys::default();
    let (mut is_new, mut drawn) = (true, Instant::now());
    while !keys.quits && !ends.load(Ordering::SeqCst) {
        let now = begun.elapsed().as_secs_f64();
        loop {
            match looks.try_recv() {
                Ok(look) => {
                    controller = look.controller;
                    match look.found {
                        Ok(document) => model.observe(now, document),
                        Err(reason) => model.fail(now, reason),
                    }
                    is_new = true;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => bail!("the thread that asks the controller has ended"),
            }
        }
        if is_new || drawn.elapsed() >= REDRAW {
            let board = model.board(keys.order);
            let screen = Screen {
                now,
                controller: &controller,
                board: board.as_ref(),
                outage: model.outage(),
                events: model.events().collect(),
                order: keys.order,
                shows_help: keys.shows_help,
            };
            let drawing = terminal.draw(|frame| draw(&screen, frame.area(), frame.buffer_mut()));
            drawing.context("cannot draw on the terminal")?;
            (is_new, drawn) = (false, Instant::now());
        }
        if event::poll(TURN).context("cannot read the terminal")? {
            if let Event::Key(key) = event::read().context("cannot read the terminal")?
                && key.kind != KeyEventKind::Release
            {
                keys.press(key);
            }
            is_new = true;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(codes: &[KeyCode]) -> Keys {
        let mut keys = Keys::default();
        for code in codes {
            keys.press(KeyEvent::new(*code, KeyModifiers::NONE));
        }
        keys
    }

    #[test]
    fn keys_quit_sort_and_help() {
        assert!(press(&[KeyCode::Char('q')]).quits && press(&[KeyCode::Esc]).quits);
        assert_eq!(press(&[KeyCode::Char('s')]).order, Order::Activity);
        assert_eq!(press(&[KeyCode::Char('s'), KeyCode::Char('s')]), Keys::default());
        assert!(press(&[KeyCode::Char('?')]).shows_help);
        assert_eq!(press(&[KeyCode::Char('?'), KeyCode::Esc]), Keys::default(), "Esc leaves the help first");
        let mut keys = press(&[KeyCode::Char('?')]);
        keys.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(keys.quits, "Ctrl-C always quits");
        assert_eq!(press(&[KeyCode::Char('x')]), Keys::default());
    }
}
