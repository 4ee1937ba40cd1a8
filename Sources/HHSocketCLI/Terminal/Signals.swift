// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocketSystem
import NIOConcurrencyHelpers

/// A stream of signals, for the lifetime of this object. The signals no longer end the process.
final class Signals {
    /// The received signals.
    let stream: AsyncStream<CInt>
    /// Inserts signals that were not received.
    let continuation: AsyncStream<CInt>.Continuation
    private let sources: [any DispatchSourceSignal]

    /// The signals that are ignored because they were caught here.
    private static let caught = NIOLockedValueBox<Set<CInt>>([])

    /// A signal that the process was started to ignore stays ignored: shells without job control do that with SIGINT
    /// for commands in the background, because Ctrl-C is meant for the one in the foreground.
    ///
    /// - Parameters:
    ///   - numbers: SIGINT and SIGTERM by default.
    ///   - ignoredToo: Whether signals are received even if the process was started to ignore them, which is right only
    ///     for signals that do not end the command.
    init(_ numbers: [CInt] = [SIGINT, SIGTERM], ignoredToo: Bool = false) {
        let (stream, continuation) = AsyncStream.makeStream(of: CInt.self)
        (self.stream, self.continuation) = (stream, continuation)
        let queue = DispatchQueue(label: "signals")
        let registered = DispatchGroup()
        self.sources = numbers.filter { Self.ignore($0) || ignoredToo }.map { number in
            let source = DispatchSource.makeSignalSource(signal: number, queue: queue)
            source.setEventHandler { continuation.yield(number) }
            registered.enter()
            source.setRegistrationHandler { registered.leave() }
            source.resume()
            return source
        }
        // Sources start on another thread, some time later. A signal before that would be lost.
        registered.wait()
    }

    deinit {
        for source in self.sources { source.cancel() }
    }

    /// Makes `write` report a closed output, instead of a signal that ends the process.
    static func ignoreBrokenPipes() {
        signal(SIGPIPE, SIG_IGN)
    }

    /// Ignores a signal, because a source only observes: otherwise the signal would still have its default effect.
    ///
    /// - Returns: Whether it was not ignored when the process was started.
    private static func ignore(_ number: CInt) -> Bool {
        self.caught.withLockedValue { caught in
            let former = signal(number, SIG_IGN)
            guard unsafeBitCast(former, to: Int.self) != unsafeBitCast(SIG_IGN, to: Int.self) else {
                return caught.contains(number)
            }
            caught.insert(number)
            return true
        }
    }
}
