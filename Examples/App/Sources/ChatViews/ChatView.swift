// SPDX-License-Identifier: Apache-2.0
// Docs/Apps.md quotes this file word for word.
#if canImport(SwiftUI)
import ChatModel
import SwiftUI

/// The screen of the chat: notes, unsent messages, and a banner while there is no connection.
struct ChatView: View {
    @Bindable var model: ChatModel

    var body: some View {
        VStack {
            if let banner = self.model.status.banner { Text(banner) }
            List {
                ForEach(self.model.notes, id: \.number) { note in
                    Text("\(note.message.author): \(note.message.text)")
                }
                ForEach(self.model.unsent) { message in
                    UnsentRow(message: message) { await self.model.retry(message) }
                }
            }
            HStack {
                TextField("Message", text: self.$model.draft)
                self.sendButton
            }
        }
    }

    private var sendButton: some View {
        Button("Send") {
            // A button's action is synchronous. The task that it starts continues after the view has disappeared.
            Task { await self.model.send() }
        }
        .disabled(self.model.draft.isEmpty)
    }
}

/// A message that waits, or has failed.
private struct UnsentRow: View {
    let message: UnsentMessage
    let retry: () async -> Void

    var body: some View {
        HStack {
            Text(self.message.text)
            if let failure = self.message.failure {
                Text(failure)
                Button("Try again") { Task { await self.retry() } }
            } else {
                Text("waits")
            }
        }
    }
}
#endif
