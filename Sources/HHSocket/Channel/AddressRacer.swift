// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Performs an ``AddressRace``, and completes with the channel that has won.
final class AddressRacer: @unchecked Sendable {
    // Proof of Sendable: created and used only on the event loop, on which its closures are called too.
    private let eventLoop: any EventLoop
    private let time: SocketTime
    /// The alarm for the start of the next attempt.
    private var alarm: TimeAlarm?
    private var race: AddressRace
    private var errors: [any Error] = []
    /// Nil once the race is over.
    private var promise: EventLoopPromise<any Channel>?
    private let isWanted: () -> Bool
    private let connect: (String) -> EventLoopFuture<any Channel>

    /// - Parameters:
    ///   - isWanted: Whether the attempt continues.
    ///   - connect: Connects to an address. If the attempt is abandoned, its futures fail.
    init(
        _ addresses: [String],
        on eventLoop: any EventLoop,
        time: SocketTime = SocketTime(),
        isWanted: @escaping () -> Bool,
        connect: @escaping (String) -> EventLoopFuture<any Channel>
    ) {
        self.race = AddressRace(addresses)
        self.eventLoop = eventLoop
        self.time = time
        self.isWanted = isWanted
        self.connect = connect
    }

    /// Begins the race. Must be called once.
    ///
    /// - Returns: The first connection; if there is none, the most informative error. Attempts that have lost are not
    ///   closed before they have connected.
    func run() -> EventLoopFuture<any Channel> {
        let promise = self.eventLoop.makePromise(of: (any Channel).self)
        self.promise = promise
        self.perform(self.race.begin(now: self.time.now(on: self.eventLoop)))
        return promise.futureResult
    }

    private func perform(_ step: AddressRace.Step) {
        guard self.promise != nil else { return }
        guard self.isWanted() else { return self.end(.failure(CancellationError())) }
        switch step {
        case .wait: break
        case .end: self.end(.failure(SocketError.mostInformative(of: self.errors) ?? CancellationError()))
        case .connect(let address):
            let nextStart = self.race.nextStart
            self.connect(address).whenComplete { self.ended($0) }
            guard let nextStart else { return }
            // Weak, so that a finished race is not retained.
            self.alarm?.cancel()
            self.alarm = self.time.schedule(at: nextStart, on: self.eventLoop) { [weak self] in
                guard let self else { return }
                self.alarm = nil
                self.perform(self.race.timerFired(now: self.time.now(on: self.eventLoop)))
            }
        }
    }

    private func ended(_ result: Result<any Channel, any Error>) {
        switch result {
        case .success(let channel):
            if self.promise == nil { channel.close(promise: nil) } else { self.end(.success(channel)) }
        case .failure(let error):
            self.errors.append(error)
            self.perform(self.race.failed(now: self.time.now(on: self.eventLoop)))
        }
    }

    private func end(_ result: Result<any Channel, any Error>) {
        let promise = self.promise
        self.promise = nil
        self.alarm.take()?.cancel()
        promise?.completeWith(result)
    }
}
