// SPDX-License-Identifier: Apache-2.0
// Docs/Apps.md quotes this file word for word.

import HHSocketRPC
import Observation

/// The state of the chat's screen, and the actions of its user. All of it is on the main actor, as views are.
@MainActor @Observable package final class ChatModel {
    /// The notes of the room, by their numbers.
    package private(set) var notes: [Chat_Note] = []
    /// The user's messages that the server has not confirmed, in their order.
    package private(set) var unsent: [UnsentMessage]
    package private(set) var status = ConnectionStatus.connecting
    /// A text for an alert; nil while there is none.
    package var alert: String?
    /// The text that is being typed.
    package var draft = ""

    private let author: String
    private let chat: any Chat_Chat.ClientProtocol
    private let file: UnsentFile?
    private var isSending = false
    /// The number of times that ``sendUnsent()`` was called.
    private var sendingRequests = 0

    /// - Parameters:
    ///   - chat: A `Chat_Chat.Client`, or in tests a `Chat_Chat.MockClient`.
    ///   - file: Keeps unsent messages for the next run; nil for none.
    package init(author: String, chat: any Chat_Chat.ClientProtocol, file: UnsentFile? = nil) {
        self.author = author
        self.chat = chat
        self.file = file
        self.unsent = file?.load() ?? []
    }

    // MARK: The connection

    /// Follows the connection and the room until the Swift task is cancelled, as a view's task is.
    package func run(events: AsyncStream<SocketEvent>) async {
        // Subscribed before anything is loaded, so that no note is missed in between.
        let pushes = self.chat.pushes(Chat_Note.self)
        let reading = Task {
            for await note in pushes { self.merge([note]) }
        }
        var catchingUp: Task<Void, Never>?
        for await event in events {
            self.status.apply(event)
            switch event {
            case .connected, .switched: catchingUp = Task { await self.catchUp() }
            default: break
            }
        }
        reading.cancel()
        catchingUp?.cancel()
    }

    /// Loads the messages missed without a connection, since the server does not repeat pushes, and sends unsent ones.
    private func catchUp() async {
        do throws(SocketError) {
            self.merge(try await self.chat.recall(Google_Protobuf_Empty()).notes)
        } catch {
            self.show(error)
        }
        await self.sendUnsent()
    }

    private func merge(_ new: [Chat_Note]) {
        let known = Set(self.notes.map(\.number))
        self.notes += new.filter { !known.contains($0.number) }
        self.notes.sort { $0.number < $1.number }
    }

    // MARK: Sending

    /// Sends the draft: immediately, or when the connection is back.
    package func send() async {
        guard !self.draft.isEmpty else { return }
        self.unsent.append(UnsentMessage(self.draft))
        self.draft = ""
        self.save()
        await self.sendUnsent()
    }

    /// Sends a failed message again.
    package func retry(_ message: UnsentMessage) async {
        guard let index = self.unsent.firstIndex(where: { $0.id == message.id }) else { return }
        self.unsent[index].failure = nil
        self.save()
        await self.sendUnsent()
    }

    /// Sends the unsent messages, one after the other. Returns when none is left, or none can be sent now.
    package func sendUnsent() async {
        self.sendingRequests += 1
        guard !self.isSending else { return }
        self.isSending = true
        defer { self.isSending = false }
        var served: Int
        // A call may fail on the old connection after the new one has requested another pass.
        repeat {
            served = self.sendingRequests
            await self.sendWaiting()
        } while served != self.sendingRequests
    }

    private func sendWaiting() async {
        while let message = self.unsent.first(where: { $0.failure == nil }) {
            var request = Chat_Message()
            request.author = self.author
            request.text = message.text
            var options = CallOptions()
            options.idempotencyKey = message.id
            do throws(SocketError) {
                _ = try await self.chat.send(request, options: options)
                self.unsent.removeAll { $0.id == message.id }
            } catch {
                guard self.hasFailed(message, with: error) else { return }
            }
            self.save()
        }
    }

    /// Whether the message fails permanently with the error, which is then shown; otherwise it stays.
    private func hasFailed(_ message: UnsentMessage, with error: SocketError) -> Bool {
        switch Advice(error) {
        case .ignore, .waitForConnection:
            return false
        case .signIn:
            self.status = .signedOut
            return false
        case .offerRetry, .showEmpty, .report:
            break
        }
        guard let index = self.unsent.firstIndex(where: { $0.id == message.id }) else { return true }
        self.unsent[index].failure = error.message
        return true
    }

    private func save() {
        do {
            try self.file?.save(self.unsent)
        } catch {
            self.alert = "Unsent messages cannot be saved: \(error.localizedDescription)"
        }
    }

    private func show(_ error: SocketError) {
        switch Advice(error) {
        case .ignore, .waitForConnection, .showEmpty: break
        case .signIn: self.status = .signedOut
        case .offerRetry, .report: self.alert = error.message
        }
    }
}
