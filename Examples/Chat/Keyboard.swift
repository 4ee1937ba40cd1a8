// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Reads the keyboard, and notices a line before it is complete.
struct Keyboard {
    enum Event {
        /// A line has begun, or all of it was erased.
        case typing(Bool)
        case line(String)
    }

    private let terminal = Terminal()
    private var line: [UInt8] = []
    private var isTyping = false
    private var events: [Event] = []
    private var hasEnded = false

    /// Waits for and returns the next event; nil at the end of the input.
    mutating func next() async -> Event? {
        while self.events.isEmpty, !self.hasEnded {
            // Reading blocks its thread.
            let bytes = await withCheckedContinuation { reader in
                DispatchQueue.global().async { reader.resume(returning: FileHandle.standardInput.availableData) }
            }
            self.take(bytes)
        }
        return self.events.isEmpty ? nil : self.events.removeFirst()
    }

    private mutating func take(_ bytes: Data) {
        if bytes.isEmpty { self.end() }
        for byte in bytes where !self.hasEnded {
            switch byte {
            case UInt8(ascii: "\n"): self.endLine()
            // Control-D, and the keys that erase: a terminal that delivers each character does not handle them itself.
            case 4 where self.terminal != nil: self.end()
            case 8 where self.terminal != nil, 127 where self.terminal != nil:
                self.line = Array(String(decoding: self.line, as: UTF8.self).dropLast().utf8)
            default: self.line.append(byte)
            }
        }
        self.terminal?.show(self.line)
        if self.line.isEmpty == self.isTyping {
            self.isTyping.toggle()
            self.events.append(.typing(self.isTyping))
        }
    }

    private mutating func endLine() {
        self.terminal?.show(self.line, isWhole: true)
        if self.line.last == UInt8(ascii: "\r") { self.line.removeLast() }
        self.events.append(.line(String(decoding: self.line, as: UTF8.self)))
        self.line = []
        // A complete line itself shows that the typing has ended.
        self.isTyping = false
    }

    private mutating func end() {
        if !self.line.isEmpty { self.endLine() }
        self.hasEnded = true
        self.terminal?.restore()
    }
}

/// A terminal that delivers each character as it is typed, instead of whole lines.
final class Terminal {
    private let original: termios
    private let signals: [any DispatchSourceSignal]

    /// Nil if standard input is not a terminal.
    init?() {
        var settings = termios()
        guard isatty(STDIN_FILENO) == 1, tcgetattr(STDIN_FILENO, &settings) == 0 else { return nil }
        let original = settings
        self.original = original
        // The terminal's settings are restored even if the program is interrupted.
        self.signals = [SIGINT, SIGTERM].map { number in
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number)
            source.setEventHandler {
                Self.apply(original)
                exit(128 + number)
            }
            source.resume()
            return source
        }
        settings.c_lflag &= ~tcflag_t(ICANON | ECHO)
        Self.apply(settings)
    }

    private static func apply(_ settings: termios) {
        var settings = settings
        tcsetattr(STDIN_FILENO, TCSANOW, &settings)
    }

    func restore() { Self.apply(self.original) }

    /// Shows the line that is being typed.
    func show(_ line: [UInt8], isWhole: Bool = false) {
        let text = "\r\u{1B}[K\(String(decoding: line, as: UTF8.self))\(isWhole ? "\n" : "")"
        FileHandle.standardOutput.write(Data(text.utf8))
    }
}
