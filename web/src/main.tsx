import { render } from 'preact';
import './style/page.css';
import { start } from './store';
import { Page } from './view/Page';

const root = document.getElementById('page');
if (root) render(<Page />, root);
void start({ address: true });
