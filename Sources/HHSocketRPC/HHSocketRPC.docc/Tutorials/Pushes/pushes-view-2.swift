import SwiftUI

struct NewsView: View {
    let model: NewsModel

    var body: some View {
        List(self.model.headlines, id: \.self) { headline in
            Text(headline)
        }
        .overlay {
            if !self.model.isOnline { ProgressView("Offline") }
        }
        .task { await self.model.follow() }
        .task { await self.model.watchConnection() }
    }
}
